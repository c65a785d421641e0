package power

import (
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"slices"
	"time"

	"k8s.io/client-go/kubernetes"

	"github.com/kubenergy/kubenergy/internal/controller/dial"
	"github.com/kubenergy/kubenergy/internal/daemon"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/sched/sleep"
)

// Modes.
const (
	ModeShadow  = "shadow"  // reports decisions without executing them
	ModeEnforce = "enforce" // puts machines to sleep
)

// Options configures Run.
type Options struct {
	Client   kubernetes.Interface
	View     func() *kube.View // power profiles and sites
	Machines []Machine
	Policy   sleep.Policy
	Mode     string // shadow or enforce
	Identity string // identity of this replica in the Lease
	// Namespace is the namespace of the Lease; defaults to that of KubEnergy. In the lab, each fleet has its own.
	Namespace string
	Clock     func() time.Time // defaults to time.Now
	Every     time.Duration    // maximum interval between rounds in real time; defaults to 5 s
	Faster    float64          // speed of the cluster's clock in the lab; defaults to 1
	Keys      dial.KeyReader   // passwords of machines and signing keys of webhooks; nil if there are none
	Loopback  bool             // allow loopback addresses, for tests and the lab
	// Probes is the listener that serves Beats as /healthz; nil to disable it.
	Probes net.Listener
	Beats  *daemon.Heartbeats // optional, to share heartbeats with other loops

	Log *slog.Logger // optional
	// Record, if set, is called with each decision and its inputs, which it must not retain.
	Record func(*sleep.Snapshot, *sleep.Plan)
}

// Recorded is a line written by [RecordTo]. Calling [sleep.Decide] with the snapshot yields the plan.
type Recorded struct {
	Snapshot *sleep.Snapshot `json:"snapshot"`
	Plan     *sleep.Plan     `json:"plan"`
}

// RecordTo returns a function for [Options].Record that writes decisions to w, one line of JSON each. Decisions
// with the same verdicts as the previous one are skipped.
func RecordTo(w io.Writer, log *slog.Logger) func(*sleep.Snapshot, *sleep.Plan) {
	var last []sleep.Verdict
	return func(s *sleep.Snapshot, p *sleep.Plan) {
		same := func(a, b sleep.Verdict) bool { return a.Do == b.Do }
		if slices.EqualFunc(last, p.Verdicts, same) {
			return
		}
		last = slices.Clone(p.Verdicts)
		if err := json.NewEncoder(w).Encode(Recorded{s, p}); err != nil {
			log.Warn("Failed to record a decision", "error", err)
		}
	}
}
