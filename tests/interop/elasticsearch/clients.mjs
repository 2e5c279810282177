// The official Elasticsearch JavaScript client, unmodified, against a server of our own.
// usage: node clients.mjs es8|es9 URL  (the namespace exists)
import assert from "node:assert/strict";
import http from "node:http";
import { gzipSync } from "node:zlib";

const [, , module, url] = process.argv;
const { Client, errors } = await import(module);
const client = new Client({ node: url, maxRetries: 0 });
const run = `${module}-${process.pid}`;

const tests = [];
const test = (name, body) => tests.push([name, body]);

async function refused(promise, status, type) {
  const error = await promise.then(() => null, (e) => e);
  assert.ok(error instanceof errors.ResponseError, `expected a ResponseError, got ${error}`);
  assert.equal(error.statusCode, status);
  assert.equal(error.body.status, status);
  assert.equal(error.body.error.type, type);
  assert.equal(error.body.error.root_cause[0].type, type);
  return error;
}

// A request that the client would not send.
function raw(method, path, headers, body) {
  return new Promise((resolve, reject) => {
    const request = http.request(url + path, { method, headers }, (response) => {
      const chunks = [];
      response.on("data", (chunk) => chunks.push(chunk));
      response.on("end", () => {
        const text = Buffer.concat(chunks).toString();
        resolve({ status: response.statusCode, headers: response.headers, text, json: text ? JSON.parse(text) : null });
      });
    });
    request.on("error", reject);
    request.end(body);
  });
}

const index = `books-${run}`;

test("product check and ping", async () => {
  assert.equal(await client.ping(), true);
  const info = await client.info();
  assert.equal(info.tagline, "You Know, for Search");
  assert.ok(Number(info.version.number.split(".")[0]) >= 8);
});

test("an index is created once, seen, and described", async () => {
  assert.equal(await client.indices.exists({ index }), false);
  const created = await client.indices.create({
    index,
    settings: { number_of_shards: 1 },
    mappings: { properties: { title: { type: "text" }, tag: { type: "keyword" }, v: { type: "dense_vector", dims: 2 } } },
  });
  assert.deepEqual(created, { acknowledged: true, shards_acknowledged: true, index });
  assert.equal(await client.indices.exists({ index }), true);
  await refused(client.indices.create({ index }), 400, "resource_already_exists_exception");
  const got = await client.indices.get({ index });
  assert.equal(got[index].mappings.properties.title.type, "text");
  assert.equal(got[index].settings.index.number_of_shards, "1");
});

test("what cannot be mapped is refused", async () => {
  await refused(client.indices.create({ index: "Upper" }), 400, "invalid_index_name_exception");
  await refused(client.indices.create({ index: `${index}-x`, mappings: { properties: { a: { type: "nested" } } } }), 400,
    "mapper_parsing_exception");
  await refused(client.indices.create({ index: `${index}-x`, settings: { analysis: { analyzer: {} , filter: { f: { type: "stop" } } } } }),
    400, "illegal_argument_exception");
  assert.equal(await client.indices.exists({ index: `${index}-x` }), false);
});

test("a document without an id gets one, as a decimal string", async () => {
  const answer = await client.index({ index, document: { title: "one" } });
  assert.equal(answer.result, "created");
  assert.equal(answer._index, index);
  assert.match(answer._id, /^(0|[1-9][0-9]*)$/);
  assert.equal(answer._version, 1);
  assert.equal(typeof answer._seq_no, "number");
  assert.ok(Number.isSafeInteger(answer._seq_no));
  assert.equal(answer._primary_term, 1);
  assert.equal(answer._shards.successful, 1);
});

test("create under an id; a second create is a version conflict", async () => {
  const answer = await client.create({ index, id: "1000", document: { title: "two" } });
  assert.equal(answer._id, "1000");
  await refused(client.create({ index, id: "1000", document: { title: "two" } }), 409, "version_conflict_engine_exception");
  await refused(client.create({ index, id: "7", document: {} }), 409, "version_conflict_engine_exception");
  await refused(client.create({ index, id: "abc", document: {} }), 400, "illegal_argument_exception");
  for (const id of ["-1", "1.0", "007", "+5", "18446744073709551616", " 1"])
    await refused(client.create({ index, id, document: {} }), 400, "illegal_argument_exception");
});

test("ids of the whole range keep every digit", async () => {
  const wide = `wide-${run}`;
  await client.indices.create({ index: wide });
  // One jump over more than half of the ids is refused: a stray id does not use them up.
  await refused(client.create({ index: wide, id: "18446744073709551615", document: {} }), 413, "illegal_argument_exception");
  for (const id of ["0", "9007199254740993", "9223372036854775807", "18446744073709551615"])
    assert.equal((await client.create({ index: wide, id, document: { id } }))._id, id);
});

test("documents that are none are refused", async () => {
  await refused(client.index({ index, document: { v: [1, 2, 3] } }), 400, "document_parsing_exception");
  const broken = await raw("POST", `/${index}/_doc`, { "content-type": "application/json" }, '{"a":');
  assert.equal(broken.status, 400);
  assert.equal(broken.json.error.type, "document_parsing_exception");
  const array = await raw("POST", `/${index}/_doc`, { "content-type": "application/json" }, "[]");
  assert.equal(array.status, 400);
});

test("an unknown index is not found", async () => {
  const error = await refused(client.index({ index: `none-${run}`, document: {} }), 404, "index_not_found_exception");
  assert.equal(error.body.error.index, `none-${run}`);
  await refused(client.indices.get({ index: `none-${run}` }), 404, "index_not_found_exception");
});

test("bulk answers item by item, in order", async () => {
  const answer = await client.bulk({
    index,
    refresh: "wait_for",
    operations: [
      { create: { _id: "2000" } }, { n: 1 },
      { create: { _id: "1500" } }, { n: 2 },
      { index: {} }, { n: 3 },
      { index: { _id: "1" } }, { n: 4 },
      { delete: { _id: "1" } },
      { update: { _id: "1" } }, { doc: { n: 5 } },
      { create: { _index: `none-${run}` } }, { n: 6 },
      { create: { _id: "2002" } }, { n: 7 },
    ],
  });
  assert.equal(answer.errors, true);
  assert.equal(typeof answer.took, "number");
  const items = answer.items.map((item) => Object.entries(item)[0]);
  assert.deepEqual(items.map(([action]) => action), ["create", "create", "index", "index", "delete", "update", "create", "create"]);
  assert.deepEqual(items.map(([, item]) => item.status), [201, 409, 201, 501, 501, 501, 404, 201]);
  assert.deepEqual(items.map(([, item]) => item._id), ["2000", "1500", "2001", "1", "1", "1", null, "2002"]);
  assert.equal(items[1][1].error.type, "version_conflict_engine_exception");
});

test("the bulk helper loads thousands of documents", async () => {
  const target = `helper-${run}`;
  await client.indices.create({ index: target });
  const documents = Array.from({ length: 5000 }, (_, n) => ({ n, text: `document ${n} \u{1F600}` }));
  const ids = new Set();
  const result = await client.helpers.bulk({
    datasource: documents,
    flushBytes: 100000,
    concurrency: 5,
    onDocument: () => ({ index: { _index: target } }),
    onSuccess: ({ result: item }) => ids.add((item ?? {})._id ?? item.index._id),
    onDrop: (drop) => assert.fail(JSON.stringify(drop)),
  });
  assert.equal(result.total, 5000);
  assert.equal(result.successful, 5000);
  assert.equal(result.failed, 0);
  assert.equal(ids.size, 5000);
});

test("a retry under one Idempotency-Key gets the first answer", async () => {
  const options = { headers: { "Idempotency-Key": `retry-${run}` } };
  const operations = [{ create: { _id: "3000" } }, { n: 1 }, { index: {} }, { n: 2 }, { create: { _id: "3001" } }, { n: 3 }];
  const first = await client.bulk({ index, operations }, options);
  const second = await client.bulk({ index, operations }, options);
  assert.deepEqual(second.items, first.items);
  const one = await client.index({ index, document: { n: 1 } }, { headers: { "Idempotency-Key": `one-${run}` } });
  const two = await client.index({ index, document: { n: 1 } }, { headers: { "Idempotency-Key": `one-${run}` } });
  assert.equal(two._id, one._id);
  await refused(client.index({ index, document: { n: 2 } }, { headers: { "Idempotency-Key": `one-${run}` } }), 409,
    "version_conflict_engine_exception");
});

test("the client's own retries double nothing", async () => {
  // A proxy that loses the first answer to every request: the client repeats identical bytes.
  let lost = 0;
  const seen = new Set();
  const proxy = http.createServer((request, response) => {
    const chunks = [];
    request.on("data", (chunk) => chunks.push(chunk));
    request.on("end", () => {
      const forward = http.request(url + request.url, { method: request.method, headers: request.headers }, (answer) => {
        const body = [];
        answer.on("data", (chunk) => body.push(chunk));
        answer.on("end", () => {
          const key = request.headers["idempotency-key"];
          if (key !== undefined && !seen.has(key)) {
            seen.add(key);
            lost++;
            response.socket.destroy();
            return;
          }
          response.writeHead(answer.statusCode, answer.headers);
          response.end(Buffer.concat(body));
        });
      });
      forward.end(Buffer.concat(chunks));
    });
  });
  await new Promise((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  const lossy = new Client({ node: `http://127.0.0.1:${proxy.address().port}`, maxRetries: 3, requestTimeout: 10000 });
  const target = `lossy-${run}`;
  await client.indices.create({ index: target });
  const answers = await Promise.all(Array.from({ length: 20 }, (_, n) =>
    lossy.index({ index: target, document: { n } }, { headers: { "Idempotency-Key": `lossy-${run}-${n}` } })));
  const ids = answers.map((answer) => Number(answer._id)).sort((a, b) => a - b);
  assert.equal(lost, 20);
  assert.deepEqual(ids, Array.from({ length: 20 }, (_, n) => n));
  await lossy.close();
  proxy.close();
});

test("what is not served says so", async () => {
  await refused(client.search({ index }), 501, "unsupported_operation_exception");
  await refused(client.get({ index, id: "1" }), 501, "unsupported_operation_exception");
  await refused(client.delete({ index, id: "1" }), 501, "unsupported_operation_exception");
  await refused(client.update({ index, id: "1", doc: {} }), 501, "unsupported_operation_exception");
  await refused(client.index({ index, id: "1", document: {} }), 501, "unsupported_operation_exception");
  await refused(client.indices.refresh({ index }), 501, "unsupported_operation_exception");
  await refused(client.cat.indices(), 501, "unsupported_operation_exception");
});

test("compressed bodies", async () => {
  const squeezed = new Client({ node: url, compression: true, maxRetries: 0 });
  const answer = await squeezed.index({ index, document: { text: "x".repeat(10000) } });
  assert.equal(answer.result, "created");
  await squeezed.close();
  const broken = await raw("POST", `/${index}/_doc`, { "content-type": "application/json", "content-encoding": "gzip" },
    gzipSync('{"a":1}').subarray(0, 12));
  assert.equal(broken.status, 400);
});

test("media types", async () => {
  const json = { "content-type": "application/json" };
  const plain = await raw("POST", `/${index}/_doc`, { "content-type": "text/plain" }, "{}");
  assert.equal(plain.status, 406);
  const seven = await raw("GET", "/", { accept: "application/vnd.elasticsearch+json; compatible-with=7" });
  assert.equal(seven.status, 400);
  assert.equal(seven.json.error.type, "media_type_header_exception");
  const eight = await raw("GET", "/", { accept: "application/vnd.elasticsearch+json; compatible-with=8" });
  assert.equal(eight.headers["content-type"], "application/vnd.elasticsearch+json;compatible-with=8");
  assert.equal(eight.headers["x-elastic-product"], "Elasticsearch");
  const none = await raw("GET", "/", {});
  assert.equal(none.headers["content-type"], "application/json");
  const both = await raw("POST", "/_bulk", { ...json, "content-length": "5", "transfer-encoding": "chunked" }, "hello").catch((e) => e);
  assert.ok(both instanceof Error || both.status === 400);
});

test("a large bulk in one request", async () => {
  const target = `large-${run}`;
  await client.indices.create({ index: target });
  const operations = [];
  for (let n = 0; n < 10000; n++) operations.push({ index: {} }, { n, pad: "y".repeat(1000) });
  const answer = await client.bulk({ index: target, operations });
  assert.equal(answer.errors, false);
  assert.deepEqual(answer.items.map((item) => Number(item.index._id)), Array.from({ length: 10000 }, (_, n) => n));
});

test("an index is deleted once, and its name stays taken", async () => {
  const target = `gone-${run}`;
  await client.indices.create({ index: target });
  await client.index({ index: target, document: { n: 1 } });
  assert.equal((await client.indices.delete({ index: target })).acknowledged, true);
  assert.equal(await client.indices.exists({ index: target }), false);
  await refused(client.indices.delete({ index: target }), 404, "index_not_found_exception");
  await refused(client.index({ index: target, document: { n: 2 } }), 404, "index_not_found_exception");
  const taken = await client.indices.create({ index: target }).then(() => null, (e) => e);
  assert.ok(taken instanceof errors.ResponseError);
  assert.equal(taken.statusCode, 409);
});

let failed = 0;
for (const [name, body] of tests) {
  const began = performance.now();
  try {
    await body();
    console.log(`ok - ${module}: ${name} (${Math.round(performance.now() - began)} ms)`);
  } catch (error) {
    failed++;
    console.log(`not ok - ${module}: ${name}\n${error.stack}`);
  }
}
await client.close();
console.log(`${tests.length - failed} passed, ${failed} failed`);
process.exit(failed === 0 ? 0 : 1);
