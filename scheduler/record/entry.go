package record

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/ledger"
	"github.com/kubenergy/kubenergy/sched"
)

// The actions of records.
const (
	Place   = "place"
	Hold    = "hold"
	Release = "release"
)

// An Entry is a decision, as its maker has it at hand, from which a [ledger.Record] is made. What it points to is looked at only while
// [Recorder.Tell] or [Recorder.Draft] runs, except sites and profiles, which nobody changes.
type Entry struct {
	Action           string
	At               time.Time
	Namespace        string
	OwnerKind, Owner string
	UID              string // of the pod, or of the Job that is held
	Strategy         string
	Node             string          // Place
	Start            time.Time       // of the window, if it is not At
	Snapshot         *sched.Snapshot // of one job; nil: there is none
	// what Snapshot.Nodes points to, all of it, if it is in one piece: that is copied faster
	Nodes              []sched.Node
	NoSnapshot, Reason string // NoSnapshot: why there is none
	Message            string
}

// maxCandidates is how many nodes a record holds. Those that any strategy would choose are among them, so that another
// strategy decides on them as it would on all.
const maxCandidates = 64

// scribe turns decisions into records. It is used by one goroutine.
type scribe struct {
	zip *gzip.Writer
	buf bytes.Buffer
}

// write makes the record of a decision. A snapshot that cannot be written leaves a record without one, that says so.
func (s *scribe) write(d *Entry) ledger.Record {
	r := bare(d)
	if d.Snapshot == nil || len(d.Snapshot.Queue) == 0 {
		r.Message = join(r.Message, d.NoSnapshot)
		return r
	}
	estimate(&r, d)
	if err := s.snapshot(&r, d); err != nil {
		r.Message = join(r.Message, "without its snapshot: "+err.Error())
	}
	return r
}

// bare is the record of a decision without its snapshot, and what follows from that.
func bare(d *Entry) ledger.Record {
	r := ledger.Record{
		ID: rand.Text(), At: d.At.UTC(), Action: d.Action, Namespace: d.Namespace, OwnerKind: d.OwnerKind,
		Owner: d.Owner, UID: d.UID,
		Strategy: d.Strategy, Node: d.Node, Reason: d.Reason, Message: d.Message, Quality: energy.Estimated,
	}
	if !d.Start.IsZero() {
		r.Start = d.Start.UTC()
	}
	return r
}

func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

// estimate says what the decision was expected to bring about.
func estimate(r *ledger.Record, d *Entry) {
	job := &d.Snapshot.Queue[0]
	start := d.Snapshot.Now
	if !d.Start.IsZero() {
		start = d.Start
	}
	r.Start, r.End = start.UTC(), start.Add(job.Duration).UTC()
	i := slices.IndexFunc(d.Snapshot.Nodes, func(n *sched.Node) bool { return n.Name == d.Node })
	if d.Node == "" || i < 0 {
		return
	}
	node := d.Snapshot.Nodes[i]
	window := sched.Window{Start: start, End: start.Add(node.Runtime(job))}
	e := d.Snapshot.Estimate(job, node, window)
	r.End, r.Energy, r.Carbon, r.Cost = window.End.UTC(), e.Energy, e.Carbon, float64(e.Cost)
	if series := node.Site.Carbon.Series; series != nil && series.Covers(start, start) {
		r.Intensity = series.At(start)
	}
}

func (s *scribe) snapshot(r *ledger.Record, d *Entry) error {
	cut := *d.Snapshot
	if all := len(cut.Nodes); all > maxCandidates {
		if strategy, err := sched.New(d.Strategy); err == nil {
			cut.Nodes = sched.Candidates(d.Snapshot, d.Node, strategy, maxCandidates)
			r.Message = join(r.Message, fmt.Sprintf("%d of %d candidates are recorded", len(cut.Nodes), all))
		}
	}
	encoded, err := sched.Encode(&cut)
	if err != nil {
		return err
	}
	r.Digest = sched.Digest(encoded)
	s.buf.Reset()
	if s.zip == nil {
		s.zip, _ = gzip.NewWriterLevel(&s.buf, gzip.BestSpeed) // the level is a valid one
	} else {
		s.zip.Reset(&s.buf)
	}
	if _, err := s.zip.Write(encoded); err != nil {
		return err
	}
	if err := s.zip.Close(); err != nil {
		return err
	}
	if s.buf.Len() > ledger.MaxSnapshot {
		return fmt.Errorf("it has %d bytes", s.buf.Len())
	}
	r.Snapshot = bytes.Clone(s.buf.Bytes())
	return nil
}
