// The request as a command for a POSIX shell.

/** Asks the server for this vote; the key is the shell's variable, never the key itself. */
export function asCurl(address, body, hasKey) {
  const headers = ["Content-Type: application/json"].map(quoted);
  if (hasKey) headers.push('"Authorization: Bearer $UNPRM_API_KEY"');
  return `curl -s ${quoted(address)} ${headers.map((header) => `-H ${header}`).join(" ")} -d ${quoted(JSON.stringify(body, null, 1))}`;
}

function quoted(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
