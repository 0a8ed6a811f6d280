// The measured process of the DeepSeek Harness. Speaks the runner's protocol (benchmarks/worker.py): a line `run`
// or `count` for one line of JSON. Started as `node --expose-gc worker.mjs CASE PARAMS` where its packages are.
import { Context } from '@deepseek-ai/cordis'
import LlmRuntime, { LlmAdapter, CallId, createUserMessage } from '@deepseek-ai/dsh-llm'
import SessionStore, { SessionId } from '@deepseek-ai/dsh-session'
import SystemPrompt from '@deepseek-ai/dsh-system-prompt'
import ToolRuntime, { defineTool } from '@deepseek-ai/dsh-tools'
import AgentRegistry from '@deepseek-ai/dsh-agent'
import AgentLoop from '@deepseek-ai/dsh-agent-loop'
import Jsonl from '@deepseek-ai/dsh-session-persistence-jsonl'
import * as Checkpoint from '@deepseek-ai/dsh-session-checkpoint-policy'
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { createInterface } from 'node:readline'

// What a library logs must not be taken for an answer.
const answer = o => writeSync(1, JSON.stringify(o) + '\n')
console.log = console.info = console.debug = console.error

const OPTS = { provider: 'mock', model: 'mock' }
const OK = [{ type: 'text-delta', index: 0, text: 'ok' }, { type: 'finish', reason: { kind: 'stop' } }]
const call = id => [
  { type: 'tool-call-delta', index: 0, id: CallId(id), name: 'echo', argumentsDelta: '{"x":"1"}' },
  { type: 'finish', reason: { kind: 'tool-calls' } },
]

class Fake extends LlmAdapter {
  calls = 0
  constructor(tool) { super(); this.tool = tool }
  resolveModel(provider, model) { return Promise.resolve({ provider, id: model, name: model }) }
  async * stream(options) {
    this.calls += 1
    const answered = options.messages.at(-1).content.some(block => block.type === 'tool-result')
    for (const chunk of this.tool && !answered ? call(`c${this.calls}`) : OK) yield chunk
  }
}

const scratch = process.env.BENCH_SCRATCH
async function opened({ tier = 'memory', tool = false, root = null } = {}, body) {
  const ctx = new Context()
  for (const part of [LlmRuntime, SessionStore, SystemPrompt, ToolRuntime, AgentRegistry]) await ctx.plugin(part)
  await ctx.plugin(AgentLoop, { agents: [] })
  let made = null
  if (tier !== 'memory') {
    made = root ?? mkdtempSync(join(scratch, 'bench-'))
    await ctx.plugin(Jsonl, { root: made, compression: 'none' })
    if (tier === 'synced') await ctx.plugin(Checkpoint)
  }
  ctx.llm.registerAdapter(['mock'], new Fake(tool))
  if (tool) {
    ctx.tools.register(defineTool({
      name: 'echo', description: 'Give back what it got.', parameters: { x: { type: 'string', required: true } },
      output: { schema: { type: 'string' }, render: (_args, value) => [{ type: 'text', text: value }] },
      async execute(args) { return args.x },
    }))
  }
  try { return await body(ctx) } finally {
    await ctx.fiber.dispose()
    if (made) rmSync(made, { recursive: true, force: true })
  }
}

let ids = 0
const create = ctx => ctx.agents.create({ sessionId: SessionId(`b-${process.pid}-${ids++}`), agentOptions: OPTS })
const said = () => createUserMessage({ content: [{ type: 'text', text: 'hello there' }], source: { kind: 'user' } })
async function turn(agent) { agent.followup(said()); await agent.whenIdle() }
function check(agent, events) {
  const log = agent.session.events, last = log.at(-1)
  if (last.type !== 'turn/end' || last.data.reason.kind !== 'completed') throw new Error(`ends with ${JSON.stringify(last)}`)
  if (events && log.length !== events) throw new Error(`${log.length} events instead of ${events}`)
}
const mark = () => ({ wall: performance.now(), cpu: process.cpuUsage() })
function since(start) {
  const cpu = process.cpuUsage(start.cpu)
  return { wall: (performance.now() - start.wall) / 1e3, cpu: (cpu.user + cpu.system) / 1e6 }
}

class Round {
  samples = []; values = {}; series = {}
  async span(metric, ops, body) {
    gc(); const start = mark(); await body()
    this.samples.push({ metric, ops, ...since(start), events: null, counts: {} })
  }
}
const all = (group, turns) => Promise.all(group.map(async handle => { for (let i = 0; i < turns; i++) await turn(handle.agent) }))
async function many(ctx, count) { const made = []; for (let i = 0; i < count; i++) made.push(await create(ctx)); return made }
async function repeat(count, body) { for (let i = 0; i < count; i++) await body() }

const CASES = {
  create_dispose: (run, { agents }) => opened({}, ctx => run.span('create_dispose', agents, () =>
    repeat(agents, async () => { const made = await create(ctx); await made.dispose() }))),
  create_turn_dispose: (run, { agents }) => opened({}, ctx => run.span('create_turn_dispose', agents, () =>
    repeat(agents, async () => { const made = await create(ctx); await turn(made.agent); await made.dispose() }))),
  durable_create: (run, { agents }) => opened({ tier: 'synced' }, ctx => run.span('create_turn_dispose', agents, () =>
    repeat(agents, async () => { const made = await create(ctx); await turn(made.agent); await made.dispose() }))),
  close_idle: (run, { sizes }) => opened({}, async ctx => {
    for (const size of sizes) {
      let group
      await run.span(`create_${size}`, size, async () => { group = await many(ctx, size) })
      await run.span(`close_${size}`, size, () => Promise.all(group.map(made => made.dispose())))
    }
  }),
  growth: (run, { turns, windows }) => opened({}, async ctx => {
    await all(await many(ctx, 4), 25)
    const { agent } = await create(ctx)
    run.series.growth = []
    let start = mark()
    for (let number = 1; number <= turns; number++) {
      await turn(agent)
      if (number % 100) continue
      const took = since(start)
      if (windows[number]) run.samples.push({ metric: windows[number], ops: 100, ...took, events: null, counts: {} })
      run.series.growth.push([number, took.cpu / 100])
      start = mark()
    }
    check(agent, 12 + (turns - 1) * 10)
  }),
  crowd: (run, { agents, turns }) => opened({}, async ctx => {
    await all(await many(ctx, 10), 5)
    const group = await many(ctx, agents)
    await run.span('turn', agents * turns, () => all(group, turns))
    check(group.at(-1).agent, 12 + (turns - 1) * 10)
  }),
  tools: (run, { agents, turns }) => opened({ tool: true }, async ctx => {
    await all(await many(ctx, 10), 3)
    const group = await many(ctx, agents)
    await run.span('tool_turn', agents * turns, () => all(group, turns))
    check(group.at(-1).agent)
    run.values.events = group.at(-1).agent.session.events.length / turns
  }),
  durable: (run, { turns }) => opened({ tier: 'synced' }, async ctx => {
    const made = await create(ctx)
    await repeat(5, () => turn(made.agent))
    await run.span('synced', turns, () => repeat(turns, () => turn(made.agent)))
    check(made.agent)
  }),
  durable_crowd: (run, { agents, turns }) => opened({ tier: 'synced' }, async ctx => {
    await all(await many(ctx, 5), 2)
    const group = await many(ctx, agents)
    await run.span('synced', agents * turns, () => all(group, turns))
    check(group.at(-1).agent)
  }),
  inbox: (run, { pairs, depths }) => opened({}, async ctx => {
    for (const depth of depths) {
      const made = await create(ctx), { inbox } = made.agent
      await repeat(depth, () => inbox.append('next-step', said()))
      await run.span(`depth_${depth}`, pairs, () => {
        for (let i = 0; i < pairs; i++) { const message = said(); inbox.append('next-step', message); inbox.remove(message.id) }
      })
      await made.dispose()
    }
  }),
  append: (run, { events, tiers }) => opened({}, async ctx => {
    const { agent } = await create(ctx)
    const data = { turn: 1, step: 1, chunk: { type: 'text-delta', index: 0, text: 'ok' } }
    await run.span(tiers[0], events, () => {
      for (let i = 0; i < events; i++) agent.session.append('assistant/chunk', data)
    })
  }),
  async resume(run, { root, sizes }) {
    for (const size of sizes) {
      const copy = mkdtempSync(join(scratch, 'bench-'))
      cpSync(join(root, String(size)), copy, { recursive: true })
      rmSync(join(copy, '_no-cwd', 'resume-me', 'lock'), { force: true })
      await opened({ tier: 'written', root: copy }, async ctx => {
        let made
        await run.span(`resume_${size}`, 1, async () => {
          made = await ctx.agents.resume({ resumeSessionId: SessionId('resume-me'), agentOptions: OPTS })
        })
        await turn(made.agent)
        check(made.agent)
      })
    }
  },
  memory_idle: (run, { agents }) => opened({}, async ctx => {
    await repeat(50, async () => { const made = await create(ctx); await turn(made.agent); await made.dispose() })
    gc(); gc()
    const before = process.memoryUsage()
    const kept = await many(ctx, agents)
    gc(); gc()
    const after = process.memoryUsage()
    run.values.resident_bytes = (after.rss - before.rss) / kept.length
    run.values.heap_bytes = (after.heapUsed - before.heapUsed) / kept.length
  }),
}

const [,, name, params] = process.argv
mkdirSync(scratch, { recursive: true })
const version = part => {
  const path = new URL(`node_modules/@deepseek-ai/${part}/package.json`, `file://${process.cwd()}/`)
  return JSON.parse(readFileSync(path, 'utf8')).version
}
answer({ ready: true, about: { node: process.versions.node, 'dsh-agent-loop': version('dsh-agent-loop') } })
for await (const line of createInterface({ input: process.stdin })) {
  if (!line.trim()) continue
  const run = new Round()
  await CASES[name](run, JSON.parse(params))
  answer({ samples: run.samples, values: run.values, series: run.series })
}
process.exit(0)
