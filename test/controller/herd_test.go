package controller

import (
	"bytes"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/ledger/postgres/pgtest"
	"github.com/kubenergy/kubenergy/test/controller/feed"
	"github.com/kubenergy/kubenergy/test/kit"
)

// A herd is a set of agent processes that are killed repeatedly.
type herd struct {
	tokens string // file with the tokens of hosts outside the cluster
	all    []*feeder
	began  time.Time
}

// A feeder is an agent process with simulated meters.
type feeder struct {
	node, dir string
	path      string
	wire      *wire

	mu      sync.Mutex
	process *kit.Process // nil after it has been killed
	out     bytes.Buffer // output of the current process
	kills   atomic.Int64
}

// newHerd creates agents for hosts outside the cluster, each with its own token, and for one node in the cluster.
func (w *world) newHerd(t *testing.T, hosts int) *herd {
	t.Helper()
	dir := t.TempDir()
	h := &herd{tokens: filepath.Join(dir, "hosts.yaml"), began: time.Now()}
	path := kit.Build(t, "./test/controller/feed/feeder")
	add := func(node, token string) {
		f := &feeder{node: node, dir: filepath.Join(dir, node), path: path}
		if err := os.Mkdir(f.dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(f.file("token"), []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
		h.all = append(h.all, f)
		t.Cleanup(func() {
			last := f.process
			f.kill()
			if t.Failed() && last != nil {
				t.Logf("log of the agent of %s:\n%s", node, last.Tail())
			}
		})
	}
	list := []string{"hosts:", hostLine(meteredNode)}
	for i := range hosts {
		node := fmt.Sprintf("host-%d", i)
		list = append(list, hostLine(node))
		add(node, tokenOf(node))
	}
	add("node-0", w.Token(t, "kubenergy-agent", w.agentPod(t, "node-0")))
	if err := os.WriteFile(h.tokens, []byte(strings.Join(list, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return h
}

// meteredNode is an additional host with a token.
const meteredNode = "host-metered"

func tokenOf(node string) string { return "the-token-of-" + node }

func hostLine(node string) string {
	return fmt.Sprintf("- {node: %s, tokenSHA256: %x}", node, sha256.Sum256([]byte(tokenOf(node))))
}

// connect sets the wire through which all agents deliver batches.
func (h *herd) connect(w *wire) {
	for _, f := range h.all {
		f.wire = w
	}
}

func (f *feeder) file(name string) string { return filepath.Join(f.dir, name) }

// start starts the agent process.
func (f *feeder) start() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.out.Reset()
	cmd := exec.Command(f.path, "-node="+f.node, "-state="+f.file("state"), "-finish="+f.file("finish"),
		"-url="+f.wire.url, "-ca="+f.wire.caFile, "-token="+f.file("token"))
	cmd.Stdout = &f.out
	p, err := kit.Launch(f.dir, "agent", cmd)
	if err == nil {
		f.process = p
	}
	return err
}

// kill kills the agent process without a graceful shutdown.
func (f *feeder) kill() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.process != nil {
		f.process.Kill()
		f.process = nil
	}
}

// lives starts and kills the agent the given number of times and then starts it again.
func (f *feeder) lives(kills int) error {
	points := []point{anywhere, beforeAck, anywhere, beforeWrite, anywhere, halfAck}
	longest := 400 * time.Millisecond
	if long() {
		longest = 6 * time.Second // so that agents are killed for as long as the controller
	}
	for i := range kills {
		if err := f.start(); err != nil {
			return err
		}
		time.Sleep(rand.N(longest))
		if at := points[i%len(points)]; at == anywhere {
			f.kill()
		} else if !f.wire.wait(f.node, f.wire.set(f.node, at, f.kill), 5*time.Second) {
			f.kill() // no batch is delivered while the controller is down
		}
		f.kills.Add(1)
	}
	return f.start()
}

// start starts all agents and kills each of them the given number of times in the background. It returns a function
// that waits until the kills are done.
func (h *herd) start(kills int) (wait func() error) {
	errs := make([]error, len(h.all))
	var all sync.WaitGroup
	for i, f := range h.all {
		all.Go(func() { errs[i] = f.lives(kills) })
	}
	return func() error {
		all.Wait()
		return errors.Join(errs...)
	}
}

func (h *herd) kills() (n int64) {
	for _, f := range h.all {
		n += f.kills.Load()
	}
	return n
}

// finish makes all agents deliver their remaining batches and returns the number of steps by node.
func (h *herd) finish(t *testing.T, timeout time.Duration) map[string]uint64 {
	t.Helper()
	steps := map[string]uint64{}
	for _, f := range h.all {
		if err := os.WriteFile(f.file("finish"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	deadline := time.After(timeout)
	for _, f := range h.all {
		select {
		case <-f.process.Done():
		case <-deadline:
			t.Fatalf("timed out after %v waiting for the agent of %s to deliver its batches: %v",
				timeout, f.node, f.wire)
		}
		n, err := strconv.ParseUint(strings.TrimSpace(f.out.String()), 10, 64)
		if err != nil {
			t.Fatalf("agent of %s exited without the number of its steps: %v", f.node, err)
		}
		steps[f.node] = n
	}
	return steps
}

// sums returns the recorded usage by node, kind and consumer.
func (c *controllerProcess) sums(t *testing.T,
	from time.Time,
) (booked map[string]map[feed.Key]feed.Sum, total energy.Microjoules) {
	t.Helper()
	q := url.Values{
		"groupBy": {"node", "kind", "pod"}, "limit": {"100000"},
		"from": {from.UTC().Format(time.RFC3339)}, "to": {time.Now().Add(time.Hour).UTC().Format(time.RFC3339)},
	}
	var a ledger.Answer
	if err := c.ask(t, "/api/v1/ledger?"+q.Encode(), &a); err != nil {
		t.Fatal(err)
	}
	booked = map[string]map[feed.Key]feed.Sum{}
	for i := range a.Rows {
		row := &a.Rows[i]
		if len(row.Key) != 3 {
			t.Fatalf("unexpected ledger row, the response may be truncated: %v", row)
		}
		if booked[row.Key[0]] == nil {
			booked[row.Key[0]] = map[feed.Key]feed.Sum{}
		}
		booked[row.Key[0]][feed.Key{Kind: row.Key[1], Name: row.Key[2]}] = feed.Sum{
			Dynamic: row.Dynamic, Idle: row.Idle, CPU: row.CPU,
		}
	}
	return booked, a.Total.Energy()
}

// verify checks that the ledger matches the actual usage to the microjoule. sums contains the totals of
// nodes without known parts.
func (c *controllerProcess) verify(t *testing.T, from time.Time, steps map[string]uint64, sums map[string]energy.Microjoules) {
	t.Helper()
	var booked map[string]map[feed.Key]feed.Sum
	var total energy.Microjoules
	// A query only folds a short journal. Otherwise the journal is folded every 30 seconds.
	kit.Eventually(t, time.Minute, "the journal is folded", func() bool {
		folded := c.statistics(t).Journal == 0
		booked, total = c.sums(t, from)
		return folded
	})
	var all energy.Microjoules
	wrong, consumers := 0, 0
	for node, used := range sums {
		var have energy.Microjoules
		for _, got := range booked[node] {
			have += got.Dynamic + got.Idle
		}
		if have != used {
			t.Errorf("node %s used %d µJ, recorded %d µJ", node, used, have)
		}
		all += used
	}
	for node, n := range steps {
		truth := feed.Truth(node, n)
		var used, have energy.Microjoules
		for key, want := range truth {
			used += want.Dynamic + want.Idle
			if got := booked[node][key]; got != want {
				if wrong++; wrong < 5 {
					t.Errorf("node %s, consumer %v: recorded %+v, want %+v", node, key, got, want)
				}
			}
		}
		for key, got := range booked[node] {
			have += got.Dynamic + got.Idle
			if _, known := truth[key]; !known && got != (feed.Sum{}) {
				t.Errorf("node %s: recorded %+[3]v for consumer %[2]v, want no usage", node, key, got)
			}
		}
		if used != have {
			t.Errorf("node %s used %d µJ, recorded %d µJ", node, used, have)
		}
		all += used
		consumers += len(truth)
	}
	if all != total {
		t.Errorf("total usage is %d µJ, recorded %d µJ", all, total)
	}
	c.audit(t)
	t.Logf("used and recorded %d µJ by %d consumers of %d nodes in %v steps and by %v", all, consumers, len(steps),
		steps, sums)
}

func (c *controllerProcess) statistics(t *testing.T) (s ledger.Statistics) {
	t.Helper()
	if err := c.ask(t, "/api/v1/ledger/statistics", &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// audit runs the audit of the ledger.
func (c *controllerProcess) audit(t *testing.T) {
	t.Helper()
	var audit struct {
		Balanced bool
		Checked  int
		Problems []string
	}
	if err := c.ask(t, "/api/v1/ledger/audit", &audit); err != nil {
		t.Fatal(err)
	}
	if !audit.Balanced || audit.Checked == 0 {
		t.Errorf("ledger audit failed: %+v", audit)
	}
}

// An engine is a database engine for the ledger.
type engine struct {
	name string
	dsn  string // empty for SQLite
}

// engines runs test as a subtest for each database engine.
func engines(t *testing.T, test func(t *testing.T, e *engine)) {
	t.Run("sqlite", func(t *testing.T) { test(t, &engine{name: "sqlite"}) })
	t.Run("postgres", func(t *testing.T) { test(t, &engine{name: "postgres", dsn: pgtest.Start(t)}) })
}

func (e *engine) env() []string {
	if e.dsn == "" {
		return nil
	}
	return []string{"KUBENERGY_LEDGER_DSN=" + e.dsn}
}

// open opens the store of a stopped controller. SQLite files are copied first so that they are not modified.
func (e *engine) open(t *testing.T, c *controllerProcess) *sql.DB {
	t.Helper()
	driver, source := "pgx", e.dsn
	if e.dsn == "" {
		dir := t.TempDir()
		for _, suffix := range []string{"", "-wal"} {
			data, err := os.ReadFile(filepath.Join(c.state, "ledger.db"+suffix))
			if errors.Is(err, fs.ErrNotExist) && suffix != "" {
				continue
			}
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, "ledger.db"+suffix), data, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		driver, source = "sqlite", filepath.Join(dir, "ledger.db")
	}
	db, err := sql.Open(driver, source)
	if err != nil {
		t.Fatal(err)
	}
	return db
}

// acked returns the last acknowledged number of a stream in the store, or 0 if the stream does not exist.
func (e *engine) acked(t *testing.T, c *controllerProcess, s batch.Stream) (acked uint64) {
	t.Helper()
	db := e.open(t, c)
	defer db.Close()
	err := db.QueryRowContext(t.Context(), "SELECT acked FROM streams WHERE node = $1 AND boot = $2 AND epoch = $3",
		s.Node, s.Boot, s.Epoch).Scan(&acked)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		t.Fatal(err)
	}
	return acked
}

// whole checks that no batch of any stream is missing and that each agent has continued its only stream.
func (e *engine) whole(t *testing.T, c *controllerProcess, nodes int) {
	t.Helper()
	db := e.open(t, c)
	defer db.Close()
	var streams, gaps, spans int
	for query, into := range map[string]*int{
		"SELECT count(*) FROM streams": &streams, "SELECT sum(gaps) FROM streams": &gaps,
		"SELECT count(*) FROM spans": &spans,
	} {
		if err := db.QueryRowContext(t.Context(), query).Scan(into); err != nil {
			t.Fatal(err)
		}
	}
	if streams != nodes || gaps != 0 || spans != nodes {
		t.Errorf("%d nodes have %d streams with %d gaps and %d spans, want one stream and span per node without gaps",
			nodes, streams, gaps, spans)
	}
}
