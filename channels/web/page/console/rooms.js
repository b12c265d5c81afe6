/*
 * The rooms of the console, in the order of the list. A room has a `name`, an `icon`, the milliseconds `every` so many it
 * is asked for again, `load(context)`, `draw(data, context)`, and where something may wait in it a `count(state)`.
 */

import { agents } from "./agents.js";
import { approvals } from "./approvals.js";
import { chats } from "./chats.js";
import { config } from "./config.js";
import { later } from "./later.js";
import { letters } from "./letters.js";
import { now } from "./now.js";
import { people } from "./people.js";
import { turns } from "./turns.js";
import { usage } from "./usage.js";

export const ROOMS = [now, turns, chats, approvals, people, later, letters, usage, agents, config];
