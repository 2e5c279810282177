// grpc-js against our server.
'use strict';

const assert = require('node:assert/strict');
const { spawn } = require('node:child_process');
const path = require('node:path');
const { after, before, test } = require('node:test');
const { setTimeout: sleep } = require('node:timers/promises');

const grpc = require('@grpc/grpc-js');
const loader = require('@grpc/proto-loader');

const MIB = 1 << 20;
const PROTO = process.env.ECHO_PROTO || path.join(__dirname, '..', 'echo.proto');
const { sftest } = grpc.loadPackageDefinition(
  loader.loadSync(PROTO, { keepCase: true, longs: Number, defaults: true }));
const OPTIONS = {
  'grpc.max_receive_message_length': 16 * MIB,
  'grpc.max_send_message_length': 16 * MIB,
};

// Starts a server process; resolves once it listens.
function startServer(...options) {
  const child = spawn(process.env.ECHO_SERVER, options, { stdio: ['ignore', 'pipe', 'inherit'] });
  const server = { child, out: '' };
  server.ended = new Promise((resolve) => child.on('close', (code) => resolve(code)));
  return new Promise((resolve) => {
    child.stdout.on('data', (chunk) => {
      server.out += chunk;
      const listening = /listening (\d+)\n/.exec(server.out);
      if (listening && !server.address) {
        server.address = `127.0.0.1:${listening[1]}`;
        resolve(server);
      }
    });
  });
}

function connect(server, options = {}) {
  return new sftest.v1.Echo(server.address, grpc.credentials.createInsecure(),
    { ...OPTIONS, ...options });
}

function unary(client, request, metadata = new grpc.Metadata(), options = {}) {
  return new Promise((resolve, reject) => {
    client.Unary(request, metadata, options, (error, reply) => (error ? reject(error) : resolve(reply)));
  });
}

async function fails(code, promise) {
  const error = await promise.then(() => assert.fail('no error'), (e) => e);
  assert.equal(error.code, code, error.message);
  return error;
}

// All messages of a stream, or its error.
function collect(stream) {
  return new Promise((resolve, reject) => {
    const messages = [];
    stream.on('data', (message) => messages.push(message));
    stream.on('error', reject);
    stream.on('end', () => resolve(messages));
  });
}

async function waitFor(what, condition) {
  for (let i = 0; i < 200; i++) {
    if (await condition()) return;
    await sleep(50);
  }
  assert.fail(what);
}

let server;
let client;

before(async () => {
  server = await startServer();
  client = connect(server);
});

after(async () => {
  client.close();
  server.child.kill('SIGTERM');
  assert.equal(await server.ended, 0);
  assert.match(server.out, /drained\n$/);
});

test('unary', async () => {
  const reply = await unary(client, { text: 'hé', body: Buffer.from([0, 255]) });
  assert.equal(reply.text, 'hé');
  assert.deepEqual([...reply.body], [0, 255]);
  assert.equal(reply.identity_name, 'loopback');
  assert.equal((await unary(client, { text: 'late', delay_ms: 20 })).text, 'late');
});

test('20,000 calls, 64 in flight', async () => {
  let next = 0;
  const worker = async () => {
    while (next < 20000) {
      const text = String(next++);
      assert.equal((await unary(client, { text }, undefined, { deadline: Date.now() + 60000 })).text, text);
    }
  };
  await Promise.all(Array.from({ length: 64 }, worker));
});

test('error with details, byte for byte', async () => {
  const text = '100% €\nthere';
  const error = await fails(grpc.status.FAILED_PRECONDITION,
    unary(client, { text, fail_code: 'SF_OWNERSHIP_CONFLICT' }));
  assert.equal(error.details, text);
  const [details] = error.metadata.get('grpc-status-details-bin');
  const coded = Buffer.from(text);
  assert.deepEqual(details.subarray(0, 4 + coded.length),
    Buffer.concat([Buffer.from([8, 9, 18, coded.length]), coded]));
  assert.ok(details.includes('type.googleapis.com/searchfabric.v1.ErrorStatus'));
  assert.ok(details.includes(Buffer.from('\n\x15SF_OWNERSHIP_CONFLICT')));
  assert.ok(details.includes(Buffer.from('\n\x09violation\x12\x09asked_for')));
});

test('deadline', async () => {
  const start = Date.now();
  await fails(grpc.status.DEADLINE_EXCEEDED,
    unary(client, { delay_ms: 1500 }, undefined, { deadline: start + 200 }));
  assert.ok(Date.now() - start < 1000);
});

test('cancel of a unary call and of a stream', async () => {
  const counters = () => unary(client, { counters: true });
  await waitFor('calls of other tests', async () => (await counters()).open_count === 0);
  await sleep(1500); // the call of the deadline test has ended by now
  const start = (await counters()).cancelled_count;
  const call = client.Unary({ delay_ms: 500 }, () => {});
  await sleep(100);
  call.cancel();
  await waitFor('unary cancel', async () => (await counters()).cancelled_count === start + 1);
  const stream = client.Chat();
  const ended = collect(stream).then(() => null, (e) => e);
  stream.write({ text: 'one' });
  await new Promise((resolve) => stream.once('data', resolve));
  stream.cancel();
  assert.equal((await ended).code, grpc.status.CANCELLED);
  await waitFor('stream cancel', async () => (await counters()).open_count === 0);
});

test('4 MB, 16 of them at once, and over the limits', async () => {
  const body = Buffer.alloc(4 * MIB, 'abcdefg');
  const replies = await Promise.all(Array.from({ length: 16 }, () => unary(client, { body })));
  for (const reply of replies) assert.ok(body.equals(reply.body));
  await fails(grpc.status.RESOURCE_EXHAUSTED, unary(client, { body: Buffer.alloc(9 * MIB) }));
  await fails(grpc.status.RESOURCE_EXHAUSTED, unary(client, { reply_bytes: 9 * MIB }));
  assert.equal((await unary(client, { text: 'alive' })).text, 'alive');
});

test('metadata, binary metadata, and too much of it', async () => {
  const metadata = new grpc.Metadata();
  metadata.set('x-color', 'blue');
  metadata.set('x-raw-bin', Buffer.from('bytes~'));
  assert.equal((await unary(client, { metadata_name: 'x-color' }, metadata)).text, 'blue');
  assert.equal((await unary(client, { metadata_name: 'x-raw-bin' }, metadata)).text, 'bytes~');
  metadata.set('x-large', 'y'.repeat(20000));
  await fails(grpc.status.RESOURCE_EXHAUSTED, unary(client, {}, metadata));
  assert.equal((await unary(client, { text: 'alive' })).text, 'alive');
});

test('unknown method', async () => {
  await fails(grpc.status.UNIMPLEMENTED, new Promise((resolve, reject) => {
    client.Unserved({}, (error, reply) => (error ? reject(error) : resolve(reply)));
  }));
});

test('gzip', async () => {
  const compressed = connect(server, { 'grpc.default_compression_algorithm': 2 });
  const body = Buffer.alloc(MIB, 'z');
  assert.ok(body.equals((await unary(compressed, { body })).body));
  await fails(grpc.status.RESOURCE_EXHAUSTED, unary(compressed, { body: Buffer.alloc(12 * MIB) }));
  compressed.close();
});

test('bidi stream of 10,000 messages in order', async () => {
  const stream = client.Chat();
  const replies = collect(stream);
  for (let i = 0; i < 10000; i++) stream.write({ text: String(i) });
  stream.end();
  const numbers = (await replies).map((reply) => [reply.number, reply.text]);
  assert.equal(numbers.length, 10000);
  numbers.forEach(([number, text], i) => assert.deepEqual([number, text], [i, String(i)]));
});

test('client stream, server stream, empty stream', async () => {
  const collected = await new Promise((resolve, reject) => {
    const stream = client.Collect((error, reply) => (error ? reject(error) : resolve(reply)));
    for (let i = 0; i < 200; i++) stream.write({ body: Buffer.alloc(100000) });
    stream.end();
  });
  assert.deepEqual([collected.number, collected.body_bytes], [200, 20000000]);
  assert.equal((await collect(client.Many({ count: 1000 }))).length, 1000);
  const empty = client.Chat();
  empty.end();
  assert.deepEqual(await collect(empty), []);
});

test('a stream whose client does not read holds the server back', async () => {
  const stream = client.Chat();
  stream.pause();
  stream.write({ reply_bytes: 65536, count: 1024 });
  stream.end();
  await sleep(300);
  const all = collect(stream);
  stream.resume();
  const replies = await all;
  assert.deepEqual(replies.map((reply) => reply.number), Array.from({ length: 1024 }, (_, i) => i));
});

test('keepalive pings, idle and in a call', async () => {
  const pinging = connect(server, {
    'grpc.keepalive_time_ms': 300,
    'grpc.keepalive_timeout_ms': 300,
    'grpc.keepalive_permit_without_calls': 1,
  });
  assert.equal((await unary(pinging, { text: 'a', delay_ms: 1000 })).text, 'a');
  await sleep(1000);
  assert.equal((await unary(pinging, { text: 'b' })).text, 'b');
  pinging.close();
});

test('drain with open calls', async () => {
  const draining = await startServer();
  const user = connect(draining);
  const slow = unary(user, { text: 'slow', delay_ms: 1500 });
  const stream = user.Chat();
  const seen = [];
  const ended = new Promise((resolve, reject) => {
    stream.on('data', (reply) => seen.push(reply.text));
    stream.on('end', resolve);
    stream.on('error', reject);
  });
  stream.write({ text: 'before' });
  await waitFor('first reply', () => seen.length === 1);
  draining.child.kill('SIGTERM');
  await sleep(300);
  const late = connect(draining);
  await fails(grpc.status.UNAVAILABLE, unary(late, {}, undefined, { deadline: Date.now() + 5000 }));
  stream.write({ text: 'during' });
  await waitFor('reply during the drain', () => seen.length === 2);
  assert.equal((await slow).text, 'slow');
  stream.end();
  await ended;
  const start = Date.now();
  assert.equal(await draining.ended, 0);
  assert.ok(Date.now() - start < 2000);
  late.close();
  user.close();
});
