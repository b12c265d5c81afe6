/*
 * Quiet colours for code: comments, strings, numbers and the words that most languages share. One pass of one
 * pattern for each family of languages; it knows no grammar, and where it is wrong a word is merely black. The text
 * stays as it was, character by character.
 */

const CHARS_MAX = 30_000;

const WORDS =
  "abstract|and|as|assert|async|await|begin|bool|boolean|break|case|catch|char|class|const|continue|def|" +
  "default|defer|del|delete|do|double|elif|else|elsif|end|enum|except|export|extends|extern|False|false|final|" +
  "finally|float|fn|for|foreach|from|func|function|go|if|impl|implements|import|in|instanceof|int|interface|is|" +
  "lambda|let|long|loop|match|mod|module|mut|namespace|new|nil|None|nonlocal|not|null|of|or|package|pass|" +
  "private|protected|pub|public|raise|return|self|Self|short|static|str|string|struct|super|switch|this|throw|" +
  "throws|trait|True|true|try|type|typeof|undefined|unless|unsigned|use|using|val|var|void|when|where|while|" +
  "with|yield";
const SHELL =
  "if|then|else|elif|fi|for|in|do|done|while|until|case|esac|function|return|export|local|set|source|exit|echo|cd|sudo";
const SQL =
  "select|from|where|insert|into|values|update|set|delete|create|table|index|view|drop|alter|add|join|left|" +
  "right|inner|outer|on|and|or|not|null|is|in|as|order|by|group|having|limit|offset|union|all|distinct|primary|" +
  "key|references|default|begin|commit|with|case|when|then|else|end|like|between|exists";

const HASH = String.raw`#[^\n]*`;
const SLASHES = String.raw`\/\/[^\n]*|\/\*[\s\S]*?(?:\*\/|$)`;
const DASHES = String.raw`--[^\n]*|\/\*[\s\S]*?(?:\*\/|$)`;
const TAGS = String.raw`<!--[\s\S]*?(?:-->|$)`;
const LONG_STRING = String.raw`"""[\s\S]*?(?:"""|$)|'''[\s\S]*?(?:'''|$)`;
const STRING = String.raw`"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'`;
const TEMPLATE = "`(?:\\\\.|[^`\\\\])*`";
const NUMBER = String.raw`\b(?:0[xXbBoO][\da-fA-F_]+|\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?)\b`;

const FAMILIES = [
  [
    /^(python|py|ruby|rb|perl|r|elixir|julia|nim)$/,
    { comment: HASH, string: `${LONG_STRING}|${STRING}`, words: WORDS },
  ],
  [
    /^(sh|bash|shell|zsh|console|dockerfile|docker|makefile|make)$/,
    { comment: `(?<![^\\s;])${HASH}`, string: STRING, words: SHELL },
  ],
  [
    /^(yaml|yml|toml|ini|conf|properties)$/,
    { comment: `(?<!\\S)${HASH}`, string: STRING, words: "true|false|null|yes|no|on|off" },
  ],
  [
    /^(sql|postgresql|mysql|sqlite|lua|haskell|hs)$/,
    { comment: DASHES, string: STRING, words: `${SQL}|${WORDS}`, flags: "i" },
  ],
  [/^(html|xml|svg|vue)$/, { comment: TAGS, string: STRING, words: String.raw`(?<=<\/?)[\w:-]+` }],
  [/^(json|jsonc|json5)$/, { comment: SLASHES, string: STRING, words: "true|false|null" }],
  [/^(css|scss|less)$/, { comment: SLASHES, string: STRING, words: String.raw`@[\w-]+` }],
  [
    /^(js|javascript|ts|typescript|jsx|tsx|java|c|cpp|c\+\+|h|cs|csharp|go|golang|rust|rs|kotlin|kt|swift|php|scala|dart|zig|proto)$/,
    { comment: SLASHES, string: `${STRING}|${TEMPLATE}`, words: WORDS },
  ],
];

const patterns = new Map();

/** Gives a `code.language-x` this text, coloured. What it had before and still has keeps its nodes: it may be selected. */
export function paint(code, text = code.textContent) {
  const language = /(?:^|\s)language-(\S+)/.exec(code.className)?.[1]?.toLowerCase();
  const pattern = language && text.length <= CHARS_MAX ? patternOf(language) : null;
  const pieces = [];
  let end = 0;
  for (const match of pattern ? text.matchAll(pattern) : []) {
    const [kind] = Object.entries(match.groups).find(([, found]) => found !== undefined);
    if (match.index > end) pieces.push(["", text.slice(end, match.index)]);
    pieces.push([`code-${kind}`, match[0]]);
    end = match.index + match[0].length;
  }
  if (end < text.length) pieces.push(["", text.slice(end)]);
  const nodes = [...code.childNodes];
  const same = ([kind, piece], node) => node && kind === (node.className ?? "") && piece === node.textContent;
  const found = pieces.findIndex((piece, at) => !same(piece, nodes[at]));
  const at = found < 0 ? pieces.length : found;
  const [rest] = pieces.slice(at);
  const grows = rest?.[0] === "" && nodes[at]?.nodeType === Node.TEXT_NODE && rest[1].startsWith(nodes[at].data);
  if (grows) nodes[at].appendData(rest[1].slice(nodes[at].data.length));
  for (const node of nodes.slice(at + Number(grows))) node.remove();
  code.append(...pieces.slice(at + Number(grows)).map(([kind, piece]) => (kind ? coloured(kind, piece) : piece)));
}

function patternOf(language) {
  if (!patterns.has(language)) {
    const family = FAMILIES.find(([names]) => names.test(language))?.[1];
    if (/^(?:diff|patch)$/.test(language)) patterns.set(language, DIFF);
    else patterns.set(language, family ? compiled(family) : null);
  }
  return patterns.get(language);
}

/** Whole lines, told apart by how they begin. */
const DIFF = /(?<comment>^(?:@@|diff |index |--- |\+\+\+ ).*)|(?<added>^\+.*)|(?<removed>^-.*)/gm;

function compiled({ comment, string, words, flags = "" }) {
  const bounded = /^[\w|]+$/.test(words) ? `(?<![\\w.$@-])(?:${words})(?![\\w-])` : words;
  const source = `(?<comment>${comment})|(?<string>${string})|(?<number>${NUMBER})|(?<word>${bounded})`;
  return new RegExp(source, `g${flags}`);
}

function coloured(kind, text) {
  const span = document.createElement("span");
  span.className = kind;
  span.textContent = text;
  return span;
}
