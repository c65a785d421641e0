package server

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubenergy/kubenergy/internal/apiclient/api"
	"github.com/kubenergy/kubenergy/internal/controller/access"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

// Ledger is what is asked of the books.
type Ledger interface {
	Query(ctx context.Context, q *ledger.Query) (*ledger.Answer, error)
	Series(ctx context.Context, q *ledger.Query) ([]ledger.Point, error)
	Temperatures(ctx context.Context, from, to time.Time, node string) ([]ledger.Temperature, error)
	Record(ctx context.Context, records []ledger.Record) error
	Records(ctx context.Context, q *ledger.RecordQuery) ([]ledger.Record, error)
	Audit(ctx context.Context, from time.Time) (*ledger.Findings, error)
	Statistics(ctx context.Context) (ledger.Statistics, error)
}

// Live knows what is drawn now.
type Live interface {
	Nodes() api.NodesPower
	Workloads() api.WorkloadsPower
	Pods(namespace string) api.PodsPower // "": of all
}

// Gate tells callers apart; [access.Gate] does.
type Gate interface {
	Require(next http.Handler, what func(*http.Request) []access.Attributes) http.Handler
	Allowed(ctx context.Context, u *access.User, a access.Attributes) (bool, error)
}

// Config is what the interface stands on.
type Config struct {
	Cluster string // what the rows of this cluster have as their cluster
	Ledger  Ledger
	Live    Live
	Gate    Gate
	Batches http.Handler // of POST /api/v1/batches; it tells callers apart by itself
	// Bookings books what another cluster has booked.
	Bookings http.Handler
	View     func() *kube.View
	Power    func(node string) string // what its machine does, by the label; "": it is awake
	// Client reads nodes, pods and GridZones from a cache, and creates the Jobs of POST /ingest.
	Client client.Client
	// Recorded is told of decisions once they are written; nil: nothing is.
	Recorded func([]ledger.Record)

	// JobNamespaces are those in which POST /ingest may create Jobs, the first for submissions that name none; none: it
	// is off.
	JobNamespaces []string
	// Worlds says that Jobs are kept until another program has them run, in Kubernetes or elsewhere; else POST /ingest
	// creates them in this cluster.
	Worlds  bool
	Sidecar SidecarConfig

	Now        func() time.Time
	Log        *slog.Logger
	Registerer prometheus.Registerer // nil: requests are not counted
}

// SidecarConfig is about POST /metrics-ingest.
type SidecarConfig struct {
	// Book books a batch, as it would one that no agent sent.
	Book func(ctx context.Context, b *batch.Batch) error
	// Final reports whether an error of Book stays, so that trying again makes no sense.
	Final func(error) bool
	// PodUID returns the UID of a pod.
	PodUID func(namespace, name string) (uid string, ok bool)
	// Leads reports whether this replica may: two that took turns would count everything twice.
	Leads func() bool
}

const (
	maxQueries   = 4           // of the ledger at once
	jobScheduler = "kubenergy" // schedulerName of submitted Jobs' pods

	// JobImage is that of submissions that name none: it can sleep, which is all that a job without an image can mean.
	JobImage = "busybox:1.37"
)
