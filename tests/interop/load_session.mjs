// Loads a session with the published packages of the harness and says what it found, as JSON.
//   node load_session.mjs inspect|prepare|write ROOT ID none|zstd
import { Context } from '@deepseek-ai/cordis'
import SessionStore, { SessionId, deriveEventMessage, foldSurface } from '@deepseek-ai/dsh-session'
import Jsonl from '@deepseek-ai/dsh-session-persistence-jsonl'
import { readFileSync } from 'node:fs'

const [, , act, root, name, compression] = process.argv
const ctx = new Context()
await ctx.plugin(SessionStore)
await ctx.plugin(Jsonl, { root, ...(compression === 'none' ? { compression: 'none' } : {}) })
const store = ctx.sessionPersistence
const id = SessionId(name)

function told(meta, events) {
  const surface = foldSurface(events)
  const seqs = [...(surface.nodes ?? surface.surface ?? surface)].map(node => node.seq ?? node)
  const messages = seqs.map(seq => deriveEventMessage(events[seq])).filter(message => message !== undefined)
  return { meta, count: events.length, types: events.map(event => event.type), surface: seqs, messages }
}

let answer
if (act === 'write') {
  // ROOT gets a session with the events of a JSON file on standard input: {header, events}
  const { header, events } = JSON.parse(readFileSync(0, 'utf8'))
  await store.create(header)
  await store.append(id, events)
  answer = { written: events.length }
} else if (act === 'list') {
  answer = await store.list()
} else {
  const { meta, events } = act === 'inspect' ? await store.inspect(id) : await store.load(id)
  answer = told(meta, events)
}
console.log(JSON.stringify(answer))
await ctx.fiber.dispose()
