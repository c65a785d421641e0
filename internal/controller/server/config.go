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

// Ledger is the part of the ledger that the server uses.
type Ledger interface {
	Query(ctx context.Context, q *ledger.Query) (*ledger.Answer, error)
	Series(ctx context.Context, q *ledger.Query) ([]ledger.Point, error)
	Temperatures(ctx context.Context, from, to time.Time, node string) ([]ledger.Temperature, error)
	Record(ctx context.Context, records []ledger.Record) error
	Records(ctx context.Context, q *ledger.RecordQuery) ([]ledger.Record, error)
	Audit(ctx context.Context, from time.Time) (*ledger.Findings, error)
	Statistics(ctx context.Context) (ledger.Statistics, error)
}

// Live provides the current power of nodes, workloads and pods.
type Live interface {
	Nodes() api.NodesPower
	Workloads() api.WorkloadsPower
	Pods(namespace string) api.PodsPower // of all namespaces if namespace is empty
}

// Gate authenticates and authorizes callers. It is implemented by [access.Gate].
type Gate interface {
	Require(next http.Handler, what func(*http.Request) []access.Attributes) http.Handler
	Allowed(ctx context.Context, u *access.User, a access.Attributes) (bool, error)
}

// Config contains the dependencies and settings of the server.
type Config struct {
	Cluster string // cluster name in ledger rows of this cluster
	Ledger  Ledger
	Live    Live
	Gate    Gate
	Batches http.Handler // handles POST /api/v1/batches, including authentication
	// Bookings handles bookings that other clusters of the federation forward.
	Bookings http.Handler
	View     func() *kube.View
	Power    func(node string) string // power state of a node according to its label; empty if awake
	// Client reads nodes, pods and GridZones from a cache, and creates the Jobs of POST /ingest.
	Client client.Client
	// Recorded is called after decisions have been written to the ledger. It may be nil.
	Recorded func([]ledger.Record)

	// JobNamespaces lists the namespaces in which POST /ingest may create Jobs. The first one is the default. If
	// the list is empty, POST /ingest is disabled.
	JobNamespaces []string
	// Worlds is set if Jobs are only stored and another program starts them, in Kubernetes or elsewhere. Otherwise
	// POST /ingest creates them in this cluster.
	Worlds  bool
	Sidecar SidecarConfig

	Now        func() time.Time
	Log        *slog.Logger
	Registerer prometheus.Registerer // nil disables the metrics of requests
}

// SidecarConfig configures POST /metrics-ingest.
type SidecarConfig struct {
	// Book records a batch like one that was estimated without an agent.
	Book func(ctx context.Context, b *batch.Batch) error
	// Final reports whether an error returned by Book is permanent, so that the batch must not be retried.
	Final func(error) bool
	// PodUID returns the UID of a pod.
	PodUID func(namespace, name string) (uid string, ok bool)
	// Leads reports whether this replica is the leader. Other replicas reject metrics, because two replicas would
	// count the same energy twice.
	Leads func() bool
}

const (
	maxQueries   = 4           // maximum number of concurrent ledger queries
	maxCallers   = 10_000      // callers with their own limit of concurrent queries; the limits of others are reset
	jobScheduler = "kubenergy" // schedulerName of the pods of submitted Jobs

	// JobImage is the container image of submissions that do not specify one. It only has to provide the sleep
	// command.
	JobImage = "busybox:1.37"
)
