/*
 * A message that is spoken: the button records, shows the time, and attaches what was said; the other one throws it away.
 * It is there where the server can write down what is said and the browser can record, which it does over TLS or on
 * this machine alone.
 */

import { icon, part } from "./element.js";
import { word } from "./language.js";

const SECONDS_MAX = 600;
const TYPES = ["audio/webm", "audio/mp4", "audio/ogg"];
const ENDINGS = { "audio/webm": "webm", "audio/mp4": "m4a", "audio/ogg": "ogg" };

export class Voice {
  #button = part("voice");
  #cancel = part("voice-cancel");
  #time = part("voice-time");
  #recorder = null;
  #asking = false;
  #timer = null;

  /** `take(file)` gets what was recorded; `say(text)` tells the person. */
  constructor({ take, say }) {
    Object.assign(this, { take, say });
    this.#button.addEventListener("click", () => (this.#recorder ? this.#recorder.stop() : this.#begin()));
    this.#cancel.addEventListener("click", () => {
      this.cancel();
      this.#button.focus();
    });
    this.#draw();
  }

  /** `heard`: the server writes down what is said. */
  show(heard) {
    this.#button.hidden = !heard || !navigator.mediaDevices?.getUserMedia || !("MediaRecorder" in window);
  }

  /** Throws away what is being recorded, also while the browser still asks for the microphone. */
  cancel() {
    this.#asking = false;
    const recorder = this.#recorder;
    this.#end();
    recorder?.stop();
  }

  async #begin() {
    if (this.#asking) return;
    this.#asking = true;
    this.say("");
    try {
      const stream = await navigator.mediaDevices.getUserMedia({ audio: true });
      if (this.#asking) this.#record(stream);
      else release(stream);
    } catch (error) {
      this.say(word(error.name === "NotAllowedError" ? "voiceRefused" : "voiceMissing"));
    } finally {
      this.#asking = false;
    }
  }

  #record(stream) {
    const mimeType = TYPES.find((type) => MediaRecorder.isTypeSupported(type));
    const recorder = new MediaRecorder(stream, mimeType ? { mimeType } : {});
    const pieces = [];
    recorder.addEventListener("dataavailable", ({ data }) => data.size && pieces.push(data));
    recorder.addEventListener("stop", () => {
      release(stream);
      if (recorder !== this.#recorder) return; // thrown away
      this.#end();
      const type = recorder.mimeType.split(";")[0];
      if (pieces.length) this.take(new File(pieces, `voice.${ENDINGS[type] ?? "webm"}`, { type }));
    });
    this.#recorder = recorder;
    recorder.start();
    const began = Date.now();
    const tick = () => {
      const seconds = Math.floor((Date.now() - began) / 1000);
      this.#time.textContent = `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
      if (seconds >= SECONDS_MAX) recorder.stop();
    };
    this.#timer = setInterval(tick, 250);
    tick();
    this.#draw();
  }

  #end() {
    clearInterval(this.#timer);
    this.#recorder = null;
    this.#draw();
  }

  #draw() {
    const records = this.#recorder !== null;
    const label = word(records ? "voiceDone" : "voice");
    this.#button.replaceChildren(icon(records ? "check" : "microphone"));
    this.#button.setAttribute("aria-label", label);
    this.#button.title = label;
    this.#button.classList.toggle("records", records);
    this.#cancel.hidden = this.#time.hidden = !records;
  }
}

/** The browser shows no longer that it listens. */
function release(stream) {
  for (const track of stream.getTracks()) track.stop();
}
