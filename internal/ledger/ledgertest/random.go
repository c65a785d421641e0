package ledgertest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

// A Random generates bookings that cover all cases. These include several sites, signals and currencies, unknown
// rates, virtual machines with and without bookings of their hosts or with cyclic hosts, estimates that are
// replaced by agent data, pods with late names, batches from seconds to hours, gaps and duplicates.
type Random struct {
	Rand  *rand.Rand
	Start time.Time     // of the first booking
	Span  time.Duration // interval that contains all bookings
	// Estimates enables bookings without an agent.
	Estimates bool

	nodes []*machineState
	sent  []*ledger.Booking
	pods  map[string]ledger.Consumer
}

type machineState struct {
	name, boot, epoch string
	parent            *batch.Parent
	next              uint64
	at                time.Duration // since boot
	started           time.Time
	estimated         uint64
}

const day = 24 * time.Hour

func (r *Random) init() {
	r.pods = map[string]ledger.Consumer{}
	for _, n := range []struct{ name, host string }{
		{"rack1", ""},
		{"guest1", "rack1"},
		{"guest2", "rack1"},
		{"worker1", ""},
		{"worker2", ""},
		{"orphan", "rack9"},
		{"left", "right"},
		{"right", "left"},
		{"nested", "guest1"},
		{"alpha/worker1", ""},
		{"alpha/guest1", "alpha/worker1"},
		{"beta/worker1", ""},
	} {
		m := &machineState{
			name: n.name, boot: "boot-" + n.name, epoch: "e1", next: 1,
			started: r.Start.Add(time.Duration(r.Rand.Int64N(int64(r.Span / 4)))),
		}
		if n.host != "" {
			m.parent = &batch.Parent{Host: n.host, VM: "vm-" + n.name}
		}
		r.nodes = append(r.nodes, m)
	}
}

// Next returns the next booking.
func (r *Random) Next() *ledger.Booking {
	if r.nodes == nil {
		r.init()
	}
	if len(r.sent) > 0 && r.Rand.IntN(12) == 0 {
		return r.sent[r.Rand.IntN(len(r.sent))] // duplicate
	}
	m := r.nodes[r.Rand.IntN(len(r.nodes))]
	if r.Estimates && r.Rand.IntN(6) == 0 {
		return r.estimate(m)
	}
	if r.Rand.IntN(10) == 0 {
		m.at += time.Duration(r.Rand.Int64N(int64(r.Span / 20))) // without measurements
	}
	if r.Rand.IntN(20) == 0 {
		m.next++ // lost
	}
	lengths := []time.Duration{0, 15 * time.Second, 90 * time.Second, 7 * time.Minute, 50 * time.Minute, 3 * time.Hour}
	long := lengths[r.Rand.IntN(len(lengths))]
	if long > 0 {
		long += time.Duration(r.Rand.Int64N(int64(long)))
	}
	b := &batch.Batch{
		Version: batch.Version, Stream: batch.Stream{Node: m.name, Boot: m.boot, Epoch: m.epoch},
		First: m.next, Last: m.next + uint64(r.Rand.IntN(2)), Parent: m.parent,
		StartSinceBoot: m.at, EndSinceBoot: m.at + long,
		Start: m.started.Add(m.at), End: m.started.Add(m.at + long),
		Source: "test", Quality: []energy.Quality{energy.Measured, energy.Derived, energy.Estimated}[r.Rand.IntN(3)],
		IdlePolicy: "requests",
	}
	m.next, m.at = b.Last+1, m.at+long
	k := r.fill(b, long)
	r.sent = append(r.sent, k)
	return k
}

// estimate returns an agentless booking of one or more windows.
func (r *Random) estimate(m *machineState) *ledger.Booking {
	m.estimated++
	long := time.Duration(1+r.Rand.IntN(4)) * ledger.WindowLength
	start := r.Start.Add(time.Duration(r.Rand.Int64N(int64(r.Span)))).Truncate(ledger.WindowLength)
	b := &batch.Batch{
		Version: batch.Version, Stream: batch.Stream{
			Node: m.name, Boot: "none", Epoch: fmt.Sprintf("estimate%d", m.estimated),
		},
		First: 1, Last: 1, Start: start, End: start.Add(long), EndSinceBoot: long,
		Source: "model", Quality: energy.Estimated, IdlePolicy: "apart",
	}
	k := r.fill(b, long)
	k.Agentless = true
	return k
}

func (r *Random) fill(b *batch.Batch, long time.Duration) *ledger.Booking {
	k := &ledger.Booking{Batch: b, Received: b.End.Add(time.Second), Rates: r.rates(b.Stream.Node)}
	if r.Rand.IntN(4) == 0 {
		k.Power = []ledger.Kind{ledger.Asleep, ledger.Booting}[r.Rand.IntN(2)]
	}
	if long == 0 {
		return k
	}
	if r.Rand.IntN(3) == 0 {
		b.Unmeasured = time.Duration(r.Rand.Int64N(int64(long)))
	}
	used := func() energy.Microjoules {
		return energy.Microjoules(r.Rand.Int64N(int64(long/time.Microsecond)) * 100)
	}
	b.Idle, b.Platform, b.Unknown = used(), used(), used()*energy.Microjoules(r.Rand.IntN(2))
	b.GPUIdle, b.GPUUnknown = b.Idle*energy.Microjoules(r.Rand.IntN(2)), b.Unknown/2
	seen := map[string]bool{}
	for range r.Rand.IntN(6) {
		share, consumer := r.share(b.Stream.Node)
		if seen[share.ID] {
			continue
		}
		seen[share.ID] = true
		share.Dynamic, share.CPU = used(), time.Duration(r.Rand.Int64N(int64(long)))
		if strings.HasPrefix(share.ID, "pod/") {
			share.Idle = used()
		}
		switch r.Rand.IntN(6) { // most shares contain no GPU energy
		case 0:
			share.GPU = share.Dynamic + share.Idle
		case 1:
			share.GPU = share.Dynamic / 3
		}
		b.Shares, k.Consumers = append(b.Shares, share), append(k.Consumers, &consumer)
	}
	order := make([]int, len(b.Shares))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(x, y int) int { return strings.Compare(b.Shares[x].ID, b.Shares[y].ID) })
	shares, consumers := make([]energy.Share, len(order)), make([]*ledger.Consumer, len(order))
	b.Measured = b.Idle + b.Platform + b.Unknown
	for i, from := range order {
		shares[i], consumers[i] = b.Shares[from], k.Consumers[from]
		b.Measured += shares[i].Dynamic + shares[i].Idle
	}
	b.Shares, k.Consumers = shares, consumers
	return k
}

func (r *Random) rates(node string) ledger.Rates {
	site := "north"
	if node == "worker2" || node == "nested" {
		site = "south"
	}
	out := ledger.Rates{
		Site: site, PUE: 1 + r.Rand.Float64()/2, Carbon: r.Rand.Float64() * 700, Signal: "average",
		Price: r.Rand.Float64(), Currency: "EUR",
	}
	if site == "south" {
		out.Currency, out.Price = "SEK", out.Price*11-0.5
	}
	switch r.Rand.IntN(8) {
	case 0:
		out.Carbon, out.Signal = math.NaN(), ""
	case 1:
		out.Price, out.Currency = math.NaN(), ""
	case 2:
		out.Signal = "marginal"
	case 3:
		out.PUE = 1
	}
	return out
}

func (r *Random) share(node string) (energy.Share, ledger.Consumer) {
	switch r.Rand.IntN(6) {
	case 0:
		return energy.Share{ID: energy.System}, ledger.Consumer{
			Key: energy.System, Account: ledger.Account{Kind: ledger.System},
		}
	case 1:
		name := fmt.Sprintf("vm-guest%d", 1+r.Rand.IntN(2))
		return energy.Share{ID: energy.VMID(name)},
			ledger.Consumer{Key: energy.VMID(name), Account: ledger.Account{Kind: ledger.VM, Owner: name}}
	}
	uid := fmt.Sprintf("%s-%d", node, r.Rand.IntN(8))
	key := energy.ContainerID(uid, "")
	id := energy.ContainerID(uid, []string{"", "c1", "c2"}[r.Rand.IntN(3)])
	c, known := r.pods[uid]
	if !known {
		if r.Rand.IntN(3) == 0 { // without a name yet
			return energy.Share{ID: id}, ledger.Consumer{Key: key, Account: ledger.Account{Kind: ledger.Workload}}
		}
		n := r.Rand.IntN(5)
		c = ledger.Consumer{Key: key, Pod: fmt.Sprintf("pod-%d", r.Rand.IntN(4)), Account: ledger.Account{
			Kind: ledger.Workloads()[r.Rand.IntN(2)], Namespace: fmt.Sprintf("ns%d", r.Rand.IntN(3)),
			OwnerKind: []string{"Job", "Deployment"}[n%2],
			Owner:     fmt.Sprintf("owner%d", n), Team: []string{"", "red", "blue"}[r.Rand.IntN(3)],
			Strategy: []string{"", "exec", "carbon"}[r.Rand.IntN(3)],
		}}
		if n == 0 {
			c.Account.Parent = "CronJob/nightly"
		}
		r.pods[uid] = c
	}
	return energy.Share{ID: id}, c
}

// Query returns a random query about the generated bookings.
func (r *Random) Query() *ledger.Query {
	q := &ledger.Query{}
	from := r.Start.Add(-time.Duration(r.Rand.Int64N(int64(6 * time.Hour)))).Add(
		time.Duration(r.Rand.Int64N(int64(r.Span))))
	to := from.Add(1 + time.Duration(r.Rand.Int64N(int64(r.Span+6*time.Hour))))
	if r.Rand.IntN(3) == 0 {
		from, to = from.Truncate(day), to.Truncate(day).Add(day)
	}
	q.From, q.To = from, to
	dimensions := []ledger.Dimension{
		ledger.ByKind, ledger.ByNamespace, ledger.ByOwner, ledger.ByParent, ledger.ByTeam, ledger.ByStrategy,
		ledger.BySite, ledger.ByCluster, ledger.ByNode,
		ledger.ByPod, ledger.ByUID, ledger.ByWindow, ledger.ByHour, ledger.ByDay,
	}
	r.Rand.Shuffle(len(dimensions), func(i, j int) { dimensions[i], dimensions[j] = dimensions[j], dimensions[i] })
	q.GroupBy = dimensions[:r.Rand.IntN(4)]
	pick := func(of ...string) []string {
		if r.Rand.IntN(7) != 0 {
			return nil
		}
		r.Rand.Shuffle(len(of), func(i, j int) { of[i], of[j] = of[j], of[i] })
		return of[:1+r.Rand.IntN(len(of)-1)]
	}
	q.Namespaces = pick("ns0", "ns1", "ns2", "", "none")
	q.Owners = pick("Job/owner0", "Deployment/owner1", "vm/vm-guest1", "Job/owner2")
	q.Teams = pick("red", "blue", "")
	q.Strategies = pick("exec", "", "carbon")
	q.Sites = pick("north", "south", "east")
	q.Nodes = pick("rack1", "guest1", "worker1", "worker2", "left", "nobody", "rack9", "alpha/worker1")
	q.Own = []string{"", "home"}[r.Rand.IntN(2)]
	q.Clusters = pick("alpha", "beta", "home", "", ledger.OwnCluster)
	q.Pods = pick("pod-1", "ns0/pod-2", "worker1-1", "guest1-3", "nothing")
	if r.Rand.IntN(6) == 0 {
		q.Kinds = []ledger.Kind{ledger.Kind(r.Rand.IntN(len(slices.Collect(ledger.Kinds())))), ledger.Workload}[:1+r.Rand.IntN(2)]
	}
	if r.Rand.IntN(6) == 0 {
		q.Limit = 1 + r.Rand.IntN(5)
	}
	return q
}
