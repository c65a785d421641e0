package record

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/codec"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
)

// Actions of records.
const (
	Place   = "place"
	Hold    = "hold"
	Release = "release"
	Pause   = "pause"  // suspension of a running Job, until a planned resumption
	Scale   = "scale"  // change of the number of replicas of a running Job
	Move    = "move"   // migration of running work to another cluster
	Refuse  = "refuse" // decision not to hold an object that may wait; counted, but not recorded
)

// An Entry is a decision in the representation of its maker. It contains the record, except for fields that are
// derived later, and the input of the decision. The input is only accessed while [Recorder.Record] or
// [Recorder.Draft] runs, except for sites and profiles, which are immutable.
type Entry struct {
	ledger.Record

	Question   *sched.Snapshot // snapshot with a single job; nil if there is none
	NoSnapshot string          // reason for the missing snapshot
}

// maxCandidates is the max number of nodes in a record. The nodes that any strategy would choose are included, so
// that another strategy makes the same decision as with all nodes.
const maxCandidates = 64

// scribe converts decisions to records. It must not be used concurrently.
type scribe struct {
	zip *gzip.Writer
	buf bytes.Buffer
}

// write creates the record of a decision. If the snapshot cannot be written, the record has none, and its message
// contains the reason.
func (s *scribe) write(e *Entry) ledger.Record {
	r := bare(e)
	if e.Question == nil || len(e.Question.Queue) == 0 {
		r.Message = join(r.Message, e.NoSnapshot)
		return r
	}
	estimate(&r, e)
	if err := s.snapshot(&r, e); err != nil {
		r.Message = join(r.Message, "the snapshot is missing: "+err.Error())
	}
	return r
}

// bare returns the record of a decision without a snapshot and the fields derived from it.
func bare(e *Entry) ledger.Record {
	r := e.Record
	r.ID, r.At, r.Start, r.Quality = rand.Text(), r.At.UTC(), r.Start.UTC(), energy.Estimated
	return r
}

func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

// estimate sets the expected effects of the decision.
func estimate(r *ledger.Record, e *Entry) {
	job := &e.Question.Queue[0]
	start := e.Question.Now
	if !e.Start.IsZero() {
		start = e.Start
	}
	r.Start, r.End = start.UTC(), start.Add(job.Duration).UTC()
	i := slices.IndexFunc(e.Question.Nodes, func(n *sched.Node) bool { return n.Name == e.Node })
	if e.Node == "" || i < 0 {
		return
	}
	node := e.Question.Nodes[i]
	window := sched.Window{Start: start, End: start.Add(node.Runtime(job))}
	cost := e.Question.Estimate(job, node, window)
	r.End, r.Energy, r.Carbon, r.Cost = window.End.UTC(), cost.Energy, cost.Carbon, float64(cost.Cost)
	if series := node.Site.Carbon.Series; series != nil && series.Covers(start, start) {
		r.Intensity = series.At(start)
	}
}

func (s *scribe) snapshot(r *ledger.Record, e *Entry) error {
	cut := *e.Question
	if all := len(cut.Nodes); all > maxCandidates {
		if greedy, err := strategy.New(e.Strategy); err == nil {
			cut.Nodes = strategy.Candidates(e.Question, e.Node, greedy, maxCandidates)
			r.Message = join(r.Message, fmt.Sprintf("the record contains %d of %d candidates", len(cut.Nodes), all))
		}
	}
	encoded, err := codec.Encode(&cut)
	if err != nil {
		return err
	}
	r.Digest = codec.Digest(encoded)
	s.buf.Reset()
	if s.zip == nil {
		s.zip, _ = gzip.NewWriterLevel(&s.buf, gzip.BestSpeed) // the level is valid
	}
	s.zip.Reset(&s.buf)
	_, err = s.zip.Write(encoded)
	if err := errors.Join(err, s.zip.Close()); err != nil {
		return err
	}
	if s.buf.Len() > ledger.MaxSnapshot {
		return fmt.Errorf("its size of %d bytes exceeds the limit", s.buf.Len())
	}
	r.Snapshot = bytes.Clone(s.buf.Bytes())
	return nil
}
