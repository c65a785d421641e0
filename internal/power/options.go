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

// The modes.
const (
	ModeShadow  = "shadow"  // says what it would do, and touches nothing
	ModeEnforce = "enforce" // sends machines to sleep
)

// Options are what Run needs of the world.
type Options struct {
	Client   kubernetes.Interface
	View     func() *kube.View // power profiles and sites
	Machines []Machine
	Policy   sleep.Policy
	Mode     string // shadow or enforce
	Identity string // of this replica, in the Lease
	// Namespace of the Lease; "": that of KubEnergy. In the lab each fleet has one of its own.
	Namespace string
	Clock     func() time.Time // nil: time.Now
	Every     time.Duration    // between two looks where nothing changes, by time.Now; 0: 5 s
	Faster    float64          // than life the cluster's clock is, in the lab; 0: as fast
	Keys      dial.KeyReader   // passwords of machines, and keys that sign webhooks; nil: there are none
	Loopback  bool             // this machine may be asked too; for tests and the lab
	// Probes is where Beats are served as /healthz; nil: nowhere.
	Probes net.Listener
	Beats  *daemon.Heartbeats // nil: of Run alone

	Log *slog.Logger // nil: silence
	// Record is told each decision and what it depended on; it must not keep them. nil: nothing is told.
	Record func(*sleep.Snapshot, *sleep.Plan)
}

// Recorded is a line of what [RecordTo] writes. [sleep.Decide] makes the plan of the snapshot again.
type Recorded struct {
	Snapshot *sleep.Snapshot `json:"snapshot"`
	Plan     *sleep.Plan     `json:"plan"`
}

// RecordTo returns an [Options].Record that writes to w, as a line of JSON, each decision that sends to sleep or wakes
// other machines than the one before it.
func RecordTo(w io.Writer, log *slog.Logger) func(*sleep.Snapshot, *sleep.Plan) {
	var last []sleep.Verdict
	return func(s *sleep.Snapshot, p *sleep.Plan) {
		same := func(a, b sleep.Verdict) bool { return a.Do == b.Do }
		if slices.EqualFunc(last, p.Verdicts, same) {
			return
		}
		last = slices.Clone(p.Verdicts)
		if err := json.NewEncoder(w).Encode(Recorded{s, p}); err != nil {
			log.Warn("recording a decision", "error", err)
		}
	}
}
