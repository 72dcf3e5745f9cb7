// The peer in Node: fastify in front, undici behind.
import Fastify from 'fastify';
import { Pool } from 'undici';

const { PEER_PORT, PEER_BACKEND_PORT } = process.env;
const pool = new Pool(`http://127.0.0.1:${PEER_BACKEND_PORT}`, {
  connections: 2000, pipelining: 1, headersTimeout: 2000, bodyTimeout: 2000,
});

async function get(path) {
  const { statusCode, body } = await pool.request({ path, method: 'GET' });
  if (statusCode !== 200) {
    await body.dump();
    throw new Error(`${path}: ${statusCode}`);
  }
  return body.json();
}

const app = Fastify({ logger: false });

app.get('/page/:id', async ({ params }) => {
  const keys = ['a', 'b', 'c', 'd', 'e'];
  const answers = await Promise.all(keys.map((key) => get(`/${key}/${encodeURIComponent(params.id)}`)));
  return Object.fromEntries(keys.map((key, i) => [key, answers[i]]));
});

app.get('/search', async ({ query }) => {
  const { ids } = await get(`/ids?q=${encodeURIComponent(query.q)}`);
  return get(`/vacancies?ids=${ids.join(',')}`);
});

app.get('/raw', () => get('/raw'));

await app.listen({ host: '127.0.0.1', port: Number(PEER_PORT) });
