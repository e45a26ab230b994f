// The input, to be taken elsewhere: as the fragment of an address, which is never sent to a server and so never logged,
// and as a command.

const VERSION = "v1.";
/** Characters of input that a link may unfold to; a small hostile one could unfold to gigabytes. */
const MOST = 8 * 2 ** 20;

/** The fragment, without `#`, that stands for this input. */
export async function toFragment(input) {
  const packed = await through(new CompressionStream("deflate-raw"), new TextEncoder().encode(JSON.stringify(input)));
  const text = Array.from(packed, (byte) => String.fromCharCode(byte)).join("");
  return VERSION + btoa(text).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/** The input of a fragment; null if it can't be read. */
export async function fromFragment(fragment) {
  if (!fragment.startsWith(VERSION)) return null;
  try {
    const text = atob(fragment.slice(VERSION.length).replaceAll("-", "+").replaceAll("_", "/"));
    const bytes = Uint8Array.from(text, (character) => character.charCodeAt(0));
    const input = JSON.parse(new TextDecoder().decode(await through(new DecompressionStream("deflate-raw"), bytes)));
    return typeof input === "object" ? input : null;
  } catch {
    return null;
  }
}

async function through(stream, bytes) {
  let size = 0;
  const limit = new TransformStream({
    transform(chunk, controller) {
      size += chunk.length;
      if (size > MOST) throw new RangeError("the link expands to more than the page accepts");
      controller.enqueue(chunk);
    },
  });
  const unfolded = new Blob([bytes]).stream().pipeThrough(stream).pipeThrough(limit);
  return new Uint8Array(await new Response(unfolded).arrayBuffer());
}

/** The request as a command for a POSIX shell; the key is the shell's variable, never the key itself. */
export function asCurl(address, body, hasKey) {
  const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  const key = hasKey ? ' -H "Authorization: Bearer $UNPRM_API_KEY"' : "";
  const data = quoted(JSON.stringify(body));
  return `curl -s ${quoted(address)} -H 'Content-Type: application/json'${key} -d ${data}`;
}
