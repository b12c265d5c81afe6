// The phones, the terminal and the list of things to try. The server sends the whole state; this draws it and sends what
// people do. Texts arrive as safe HTML, made by the server from what the platforms were told.

const $ = (selector, within = document) => within.querySelector(selector);
const FACES = { ann: "A", ben: "B", wanglei: "王", lina: "李" };
const LIVES = { starting: "starting", up: "running", killed: "killed", ended: "stopped" };
const phones = new Map();
let state = null;

// what people do

async function post(address, body, headers = {}) {
    const answer = await fetch(address, { method: "POST", body, headers: { "x-rehearsal": "1", ...headers } });
    if (!answer.ok) tell(answer.status === 409 ? await answer.text() : `HTTP ${answer.status}`);
}

const act = (what) => post("act", JSON.stringify(what));

let telling = 0;
function tell(words) {
    const toast = $("#toast");
    toast.textContent = words;
    toast.hidden = false;
    clearTimeout(telling);
    telling = setTimeout(() => (toast.hidden = true), 4000);
}

// elements

function element(tag, members = {}, ...children) {
    const made = Object.assign(document.createElement(tag), members);
    made.append(...children);
    return made;
}

function bubble(phone, chat, message) {
    const mine = message.author === phone.id;
    const made = element("div", { className: "message" });
    made.dataset.author = mine ? "me" : message.author || "platform";
    made.classList.toggle("growing", message.growing);
    if (chat.is_group && !mine && message.author) {
        made.append(element("b", { className: "author", textContent: nameOf(message.author) }));
    }
    if (message.quoted) made.append(element("q", { textContent: message.quoted }));
    for (const file of message.files) {
        const link = element("a", { href: file.address, className: "file", download: file.name });
        if (file.is_picture) link.append(element("img", { src: file.address, alt: file.name }));
        else link.textContent = `📄 ${file.name}`;
        made.append(link);
    }
    if (message.html) made.append(element("div", { className: "text", innerHTML: message.html }));
    for (const link of made.querySelectorAll(".text a")) Object.assign(link, { target: "_blank", rel: "noopener" });
    for (const quote of made.querySelectorAll(".folded")) {
        quote.addEventListener("click", () => quote.classList.toggle("unfolded"));
    }
    if (message.folded) {
        const inside = element("div", { className: "text", innerHTML: message.folded[1] });
        made.append(element("details", {}, element("summary", { textContent: message.folded[0] }), inside));
    }
    for (const row of message.rows) {
        const line = element("div", { className: "buttons" });
        for (const button of row) {
            const made = element(button.link ? "a" : "button", { textContent: button.label });
            made.dataset.style = button.style;
            if (button.link) Object.assign(made, { href: button.link, target: "_blank", rel: "noopener" });
            else {
                const press = { do: "press", phone: phone.id, chat: chat.id, message: message.id, data: button.press };
                made.addEventListener("click", () => act(press));
            }
            line.append(made);
        }
        made.append(line);
    }
    if (message.stop) {
        const stop = element("button", { textContent: "Stop", className: "stop" });
        stop.addEventListener("click", () => act({ do: "stop", phone: phone.id, chat: chat.id, data: message.stop }));
        made.append(stop);
    }
    const notes = [message.edited && "edited", message.unheard && "the bot does not get this: mention it"];
    const note = notes.filter(Boolean).join(" · ");
    if (note) made.append(element("small", { textContent: note }));
    if (message.reaction) made.append(element("span", { className: "reaction", textContent: message.reaction }));
    return made;
}

const nameOf = (author) => state.phones.find((phone) => phone.id === author)?.name ?? "Clawgate";

// one phone

class Phone {
    constructor(id) {
        this.id = id;
        this.node = $("#phone").content.cloneNode(true).firstElementChild;
        this.node.dataset.panel = id;
        this.node.id = `phone-${id}`;
        $(".attach input", this.node).setAttribute("aria-label", "Send a file");
        this.at = 0;
        this.drawn = new Map();
        this.seen = new Map();
        this.log = $(".log", this.node);
        this.text = $(".text", this.node);
        $("form", this.node).addEventListener("submit", (event) => this.send(event));
        $(".mention", this.node).addEventListener("click", () => this.mention());
        $(".attach input", this.node).addEventListener("change", (event) => this.attach(event.target));
        $(".add", this.node).addEventListener("click", () => act({ do: "add", phone: id, chat: this.chat.id }));
    }

    get chat() {
        return this.phone.chats[this.at];
    }

    send(event) {
        event.preventDefault();
        const text = this.text.value.trim();
        if (!text) return;
        this.text.value = "";
        act({ do: "write", phone: this.id, chat: this.chat.id, text });
    }

    mention() {
        this.text.value = this.chat.mention + this.text.value;
        this.text.focus();
    }

    async attach(input) {
        const [file] = input.files;
        if (!file) return;
        const query = new URLSearchParams({ phone: this.id, chat: this.chat.id, name: file.name });
        await post(`upload?${query}`, file, { "content-type": "application/octet-stream" });
        input.value = "";
    }

    open(at) {
        if (this.at === at) return;
        this.at = at;
        this.log.replaceChildren();
        this.drawn.clear();
        this.draw(this.phone);
    }

    draw(phone) {
        this.phone = phone;
        const { chat } = this;
        this.node.dataset.platform = phone.platform;
        $("h2", this.node).textContent = phone.name;
        $(".face", this.node).textContent = FACES[phone.id];
        $(".platform", this.node).textContent = phone.platform === "feishu" ? "Feishu" : "Telegram";
        this.drawTabs();
        const followed = this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight < 60;
        const changed = this.drawMessages(chat);
        if (changed && followed) this.log.scrollTop = this.log.scrollHeight;
        this.log.classList.toggle("typing", chat.typing && !chat.messages.some((message) => message.growing));
        $("form", this.node).hidden = !chat.has_bot;
        $(".add", this.node).hidden = chat.has_bot;
        $(".mention", this.node).hidden = !chat.is_group;
        this.text.placeholder = chat.is_group ? `Message ${chat.title}` : "Message";
        this.log.setAttribute("aria-label", `${phone.name}: ${chat.title}`);
        this.text.setAttribute("aria-label", `${phone.name} writes to ${chat.title}`);
    }

    drawTabs() {
        const tabs = $(".chats", this.node);
        if (!tabs.childElementCount) {
            this.phone.chats.forEach((chat, at) => {
                const tab = element("button", { type: "button", textContent: chat.title });
                tab.setAttribute("role", "tab");
                tab.addEventListener("click", () => this.open(at));
                tabs.append(tab);
            });
        }
        this.phone.chats.forEach((chat, at) => {
            const theirs = chat.messages.filter((message) => message.author !== this.id && !message.growing).length;
            if (at === this.at) this.seen.set(at, theirs);
            const tab = tabs.children[at];
            tab.setAttribute("aria-selected", at === this.at);
            tab.dataset.unread = Math.max(0, theirs - (this.seen.get(at) ?? 0)) || "";
        });
    }

    /** Draw what is new or has changed; true if anything has. */
    drawMessages(chat) {
        let changed = false;
        const ids = new Set(chat.messages.map((message) => message.id));
        for (const [id, kept] of this.drawn) {
            if (ids.has(id)) continue;
            kept.node.remove();
            this.drawn.delete(id);
            changed = true;
        }
        let before = null;
        for (const message of chat.messages) {
            const version = JSON.stringify(message);
            const kept = this.drawn.get(message.id);
            if (kept?.version !== version) {
                const node = bubble(this.phone, chat, message);
                if (kept) kept.node.replaceWith(node);
                else if (before) before.after(node);
                else this.log.prepend(node);
                this.drawn.set(message.id, { version, node });
                changed = true;
            }
            before = this.drawn.get(message.id).node;
        }
        return changed;
    }
}

// the terminal, the state of the gateway

function kindOf(line) {
    if (line.startsWith("$ ")) return "typed";
    if (line === "Killed") return "killed";
    if (/^\d{4}-\d\d-/.test(line)) return "log";
    return /\/claim \w{4}-\w{4}/.test(line) ? "claim" : "said";
}

function drawTerminal() {
    const pre = $("#terminal pre");
    const text = state.terminal.join("\n");
    if (pre.dataset.text === text) return;
    const followed = pre.scrollHeight - pre.scrollTop - pre.clientHeight < 60;
    pre.dataset.text = text;
    pre.replaceChildren(
        ...state.terminal.map((line) => {
            return element("span", { className: kindOf(line), textContent: `${line}\n` });
        }),
    );
    if (followed) pre.scrollTop = pre.scrollHeight;
}

function drawLife() {
    const life = $("#life");
    life.dataset.life = state.life;
    const again = state.kills && state.life !== "killed";
    life.textContent = again ? `${LIVES[state.life]} · killed ${state.kills}×` : `gateway ${LIVES[state.life]}`;
    $("#own-page").href = `${state.gateway}/`;
    $("#own-console").href = `${state.gateway}/console`;
    const kill = $("#kill");
    kill.textContent = state.life === "ended" ? "Start it" : "kill -9";
    kill.disabled = state.life === "killed" || state.life === "starting";
}

// things to try

const STEPS = [
    ["Own the bot", "Ann sends the code that the terminal shows.", () => ["ann", 0, `/claim ${state.claim}`]],
    ["Let a stranger in", "Ben writes. Ann gets a request with a button: press it.", () => ["ben", 0, "Hi! May I use you?"]],
    ["Approve a command", "Ann asks. The agent wants to run a command and waits for her.", () => ["ann", 0, "What can you do for me?"]],
    ["Kill it", "Ben asks. Press kill -9 while the answer grows: it still arrives, once.", () => ["ben", 0, "Write me a Python script that lists files"]],
    ["Talk in a group", "Add the bot to the group. Ann is asked whether it may listen there. Then mention it.", () => ["ben", 1, "@clawgate_bot hello, who are you?"]],
    ["The other platform", "王磊 asks on Feishu, and Ann lets him in on Telegram. Then he asks again.", () => ["wanglei", 0, "你好，你能帮我做什么？"]],
    ["A reminder", "It arrives in a minute, also if you kill the gateway meanwhile.", () => ["ann", 0, "remind me in 1 minute to stretch"]],
    ["Commands", "Each person sees what they may do.", () => ["ann", 0, "/help"]],
];

function drawGuide() {
    const list = $("#guide ol");
    if (list.childElementCount) return;
    for (const [title, words, type] of STEPS) {
        const button = element("button", { type: "button", textContent: "Type it" });
        button.addEventListener("click", () => {
            const [id, at, text] = type();
            show(id);
            phones.get(id).open(at);
            phones.get(id).text.value = text;
            phones.get(id).text.focus();
        });
        const line = element("p", { textContent: words });
        list.append(element("li", {}, element("b", { textContent: title }), button, line));
    }
}

// on a small screen one panel at a time

function show(panel) {
    document.body.dataset.shown = panel;
    for (const tab of $("#tabs").children) tab.setAttribute("aria-selected", tab.dataset.panel === panel);
    for (const node of document.querySelectorAll("main [data-panel]")) node.classList.toggle("shown", node.dataset.panel === panel);
    const log = phones.get(panel)?.log ?? $("#terminal pre");
    log.scrollTop = log.scrollHeight;
}

function drawTabs() {
    const tabs = $("#tabs");
    if (tabs.childElementCount) return;
    const panels = [...state.phones.map((phone) => [phone.id, phone.name]), ["terminal", "Terminal"], ["guide", "Try"]];
    for (const [panel, name] of panels) {
        const tab = element("button", { type: "button", textContent: name });
        tab.setAttribute("role", "tab");
        tab.dataset.panel = panel;
        tab.addEventListener("click", () => show(panel));
        tabs.append(tab);
    }
    show(state.phones[0].id);
}

function draw() {
    for (const phone of state.phones) {
        if (!phones.has(phone.id)) {
            phones.set(phone.id, new Phone(phone.id));
            $("#phones").append(phones.get(phone.id).node);
        }
        phones.get(phone.id).draw(phone);
    }
    drawTerminal();
    drawLife();
    drawGuide();
    drawTabs();
}

$("#kill").addEventListener("click", () => act({ do: "kill" }));
const events = new EventSource("events");
events.onmessage = ({ data }) => {
    state = JSON.parse(data);
    draw();
};
events.onerror = () => {
    $("#life").dataset.life = "ended";
    $("#life").textContent = "the rehearsal has ended";
};
