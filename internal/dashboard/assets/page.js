// Interactive features of a page: a cursor across all bands, zooming, keyboard shortcuts, copying and live updates.
const $ = (q, e = document) => e.querySelector(q)
const body = document.body
let from, to // the visible time range, which moves on live pages
const times = () => { from = +body.dataset.from; to = +body.dataset.to }
times()

function say(text) {
  $('#status').textContent = text
  setTimeout(() => { $('#status').textContent = '' }, 2500)
}

function show(from, to) { // shows a time range on all bands and in the URL, or everything without arguments
  const u = new URL(location)
  for (const [name, t] of Object.entries({ from, to })) {
    if (t) u.searchParams.set(name, new Date(t).toISOString().slice(0, 19) + 'Z')
    else u.searchParams.delete(name)
  }
  location.assign(u)
}

let model // the data of the bands, loaded on demand
const load = () => model ??= fetch('/model.json' + location.search).then(r => r.json())

const holds = (points, t) => (points ?? []).findLast(p => Date.parse(p.at) <= t)
const short = v => v >= 1000 ? (v / 1000).toPrecision(3) + ' k' : Number(v.toPrecision(3)) + ' '

async function read(t) {
  const m = await load()
  const out = {}
  const carbon = m.zones?.[0]?.carbon, p = holds(carbon?.points, t)
  if (p && !p.unknown && t < Date.parse(carbon.until)) out.grid = short(p.value) + carbon.unit
  const w = holds(m.power?.points, t)
  const step = 1000 * (m.power?.stepSeconds ?? Infinity)
  if (w && t < Math.min(Date.parse(m.power.until), Date.parse(w.at) + step)) out.power = short(w.dynamic + w.idle + w.asleep + w.unknown) + 'W'
  const held = (m.jobs ?? []).filter(j => {
    const start = j.started ?? j.plannedStart ?? j.latestStart
    return j.plannedStart && Date.parse(j.since) <= t && t < Date.parse(start)
  }).length
  out.work = held + ' held'
  for (const e of document.querySelectorAll('.readout')) e.textContent = out[e.dataset.for] ?? ''
  const axis = $('.band.axis .about .hint')
  axis.dataset.hint ??= axis.innerHTML
  axis.textContent = new Date(t).toISOString().slice(0, 16).replace('T', ' ') + ' UTC'
}

const share = (room, x) => Math.min(1, Math.max(0, (x - room.getBoundingClientRect().left) / room.clientWidth))

let listening // aborts the listeners of the previous bands

function bands() {
  listening?.abort()
  listening = new AbortController()
  const all = $('#bands')
  if (!all) return
  const rooms = [...all.querySelectorAll('.band:not(.axis) .room')]
  const put = (name, style) => rooms.forEach(r => {
    let e = $('.' + name, r)
    if (!e) { e = document.createElement('div'); e.className = name; r.append(e) }
    Object.assign(e.style, style)
  })
  const clear = () => {
    all.querySelectorAll('.cross, .brush').forEach(e => e.remove())
    all.querySelectorAll('.readout').forEach(e => { e.textContent = '' })
    const axis = $('.band.axis .about .hint')
    if (axis?.dataset.hint) axis.innerHTML = axis.dataset.hint
  }
  let begun = null
  all.addEventListener('pointermove', e => {
    const room = e.target.closest('.room')
    if (!room && begun === null) return clear()
    const s = share(room ?? rooms[0], e.clientX)
    put('cross', { left: 100 * s + '%' })
    if (begun !== null) put('brush', { left: 100 * Math.min(s, begun) + '%', width: 100 * Math.abs(s - begun) + '%' })
    read(from + s * (to - from))
  })
  all.addEventListener('pointerleave', () => { begun = null; clear() })
  all.addEventListener('pointerdown', e => {
    const room = e.target.closest('.room')
    if (room && e.button === 0 && e.pointerType !== 'touch') begun = share(room, e.clientX)
  })
  all.addEventListener('dragstart', e => e.preventDefault())
  all.addEventListener('click', e => { if (all.dataset.brushed) { e.preventDefault(); delete all.dataset.brushed } }, true)
  addEventListener('pointerup', e => {
    if (begun === null) return
    const a = begun, b = share(rooms[0], e.clientX)
    begun = null
    if (Math.abs(a - b) > 0.01) {
      all.dataset.brushed = '1'
      show(from + Math.min(a, b) * (to - from), from + Math.max(a, b) * (to - from))
    } else clear()
  }, { signal: listening.signal })
}

function keys(e) {
  if (e.target.matches('input, select, textarea') || e.ctrlKey || e.metaKey || e.altKey) return
  const part = (to - from) / 4, middle = (from + to) / 2
  const does = {
    '/': () => $('#search')?.focus(),
    ArrowLeft: () => show(from - part, to - part),
    ArrowRight: () => show(from + part, to + part),
    '+': () => show(middle - part, middle + part),
    '-': () => show(middle - 4 * part, middle + 4 * part),
    0: () => show(),
  }[e.key]
  if (!does || (e.key !== '/' && body.dataset.view !== 'overview')) return
  e.preventDefault()
  does()
}

function whatIf() {
  const slider = $('#delay')
  const tell = () => {
    const row = $('#delays').tBodies[0].rows[slider.value]
    const [delay, start, value, saving] = [...row.cells].map(c => c.textContent)
    $('#delayed').textContent = `${delay}: starts ${start}, ${value} ${$('#delays').tHead.rows[0].cells[2].textContent} over its run, ${saving} less than an immediate start`
  }
  slider?.addEventListener('input', tell)
  if (slider) tell()
}

async function refresh() {
  if (document.activeElement?.matches('main input, main select') || $('details[open]') || $('.brush')) return
  const answer = await fetch(location.href)
  if (!answer.ok) return
  const fresh = new DOMParser().parseFromString(await answer.text(), 'text/html')
  $('#main').replaceWith(fresh.querySelector('#main'))
  Object.assign(body.dataset, fresh.body.dataset)
  times()
  model = undefined
  begin()
}

function begin() {
  bands()
  whatIf()
}

begin()
addEventListener('keydown', keys)
addEventListener('click', async e => {
  const text = e.target.closest?.('[data-copy]')?.dataset.copy
  if (!text) return
  await navigator.clipboard.writeText(text)
  say('Copied: ' + text)
})
if (body.dataset.live !== undefined && ['overview', 'decisions'].includes(body.dataset.view)) {
  let events
  const listen = () => { // browsers limit connections to six for all tabs, so hidden tabs disconnect
    events?.close()
    events = undefined
    if (document.hidden) return
    events = new EventSource('/events')
    events.addEventListener('changed', refresh)
    events.onerror = () => say('Connection lost. Reconnecting.')
  }
  listen()
  addEventListener('visibilitychange', () => { listen(); if (!document.hidden) refresh() })
}
