// Requests to the node. All are of this origin.

async function checked(response) {
  if (response.ok) return response.json();
  const told = await response.json().catch(() => null);
  throw new Error(told?.message ?? `${response.status} ${response.statusText}`);
}

const reach = (promise) => promise.catch((error) => {
  throw error.name === "AbortError" ? error : new Error("The node does not answer.");
});

export async function get(path, options = {}) {
  return checked(await reach(fetch(path, { headers: { Accept: "application/json" }, cache: "no-store", ...options })));
}

// A statement; the answer has `kind`, and `error` for a statement that failed.
export async function run(statement, options = {}) {
  const body = JSON.stringify({ statement, ...options });
  return checked(await reach(fetch("cql", { method: "POST", headers: { "Content-Type": "application/json" }, body })));
}

// Rows of a statement as objects by column, of several pages; an error of the statement is thrown.
export async function rows(statement, { pages = 1, ...options } = {}) {
  const all = [];
  let state;
  for (let page = 0; page < pages; page++) {
    const answer = await run(statement, { page_size: 500, paging_state: state, ...options });
    if (answer.error) throw Object.assign(new Error(answer.error.message), { code: answer.error.code });
    const names = (answer.columns ?? []).map((column) => column.name);
    for (const row of answer.rows ?? []) all.push(Object.fromEntries(names.map((name, at) => [name, row[at]])));
    state = answer.paging_state;
    if (!state) break;
  }
  return Object.assign(all, { more: Boolean(state) });
}
