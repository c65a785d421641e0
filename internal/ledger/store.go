package ledger

import (
	"cmp"
	"context"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
)

// A Store persists a ledger. Several processes may use the same store concurrently, isolated by its transactions.
type Store interface {
	// Book writes bookings in one transaction. errs contains an error for each booking that was rejected and nil
	// for the others. If err is not nil, no booking was recorded, unless the commit failed and its result is unknown.
	// Book without bookings writes as well, which tests whether the store is writable.
	Book(ctx context.Context, all []*Booking) (receipts []Receipt, errs []error, err error)
	// Acked returns the highest recorded sequence number of a stream. known is false if no batch of the stream is
	// recorded.
	Acked(ctx context.Context, of batch.Stream) (acked uint64, known bool, err error)
	// Reported returns the total time that the agent of a node has reported, over all of its boots.
	Reported(ctx context.Context, node string) (Reported, error)
	// Fold moves bookings from the journal into windows and sums, in several calls if there are many. It returns
	// the number of bookings that were in the journal when it started and still are.
	Fold(ctx context.Context) (left int, err error)
	Query(ctx context.Context, q *Query) (*Answer, error)
	// Series returns the power of the selected accounts, window by window. It ignores GroupBy.
	Series(ctx context.Context, q *Query) ([]Point, error)
	// Temperatures returns the hourly temperatures of all nodes, or of the given node if it is not empty.
	Temperatures(ctx context.Context, from, to time.Time, node string) ([]Temperature, error)
	Record(ctx context.Context, records []Record) error
	Records(ctx context.Context, q *RecordQuery) ([]Record, error)
	// Keep drops rows that are older than their retention. It ignores a clock that is far ahead of the newest
	// booking.
	Keep(ctx context.Context, r Retention, now time.Time) error
	// Audit compares the amounts recorded by consumer with those recorded by node and verifies checksums, starting
	// at the given time.
	Audit(ctx context.Context, from time.Time) (*Findings, error)
	Statistics(ctx context.Context) (Statistics, error)
	// Gauges returns the statistics that do not require counting folded rows, which are Journal and Bytes.
	Gauges(ctx context.Context) (Statistics, error)
	Close() error
}

// Reported is the recorded time of a node as reported by its agent.
type Reported struct {
	Time  time.Duration // total over all boots
	Since time.Time     // creation time of the node in its first booking; zero if there is no booking
	Seen  Seen          // capacity of the node when it was first recorded
}

// Seen is the capacity in the status of a Node when it was first recorded. Kubelets write this status, so later
// increases are ignored. Otherwise a kubelet could raise the maximum power that is accepted for its node. A Node
// that is deleted and created again is recorded again.
type Seen struct {
	Made  int64 // creation time of the Node in Unix seconds; 0 if there is no Node
	Cores int64 // 0 if not reported yet
	GPUs  int64
	Bytes int64 // memory in bytes
}

// Add returns s with the values that it lacks taken from now. If now belongs to a newer Node, it returns now.
func (s Seen) Add(now Seen) Seen {
	switch now.Made {
	case 0:
		return s
	case s.Made:
	default:
		return now
	}
	return Seen{
		Made: s.Made, Cores: cmp.Or(s.Cores, now.Cores), GPUs: cmp.Or(s.GPUs, now.GPUs),
		Bytes: cmp.Or(s.Bytes, now.Bytes),
	}
}

// Temperature contains statistics of a node's temperature in one hour, as reported by its agent with each batch.
type Temperature struct {
	Hour    time.Time      `json:"hour"` // start of the hour
	Node    string         `json:"node"`
	Mean    energy.Celsius `json:"meanCelsius"`
	Max     energy.Celsius `json:"maxCelsius"`
	Samples int64          `json:"samples"`
}

// Retention contains the retention periods of data. 0 keeps the data forever.
type Retention struct {
	Windows   time.Duration // five-minute windows by node and pod
	Hours     time.Duration
	Days      time.Duration
	Records   time.Duration
	Snapshots time.Duration // snapshots of records
	Streams   time.Duration // acknowledged sequence numbers of idle streams; at least a year
}

// Findings are the results of an audit. Problems is empty if the ledger is consistent.
type Findings struct {
	Checked  int // number of checked rows
	Problems []string
}

// Statistics describe the store.
type Statistics struct {
	Journal   int       `json:"journal"`         // bookings that are not folded yet
	Oldest    time.Time `json:"oldest,omitzero"` // time of the oldest booking in the journal
	Bytes     int64     `json:"bytes"`           // size on disk
	Windows   int64     `json:"windows"`
	Accounts  int64     `json:"accounts"`
	Consumers int64     `json:"consumers"`
	Records   int64     `json:"records"`
	Schema    int       `json:"schema"`
	Unsent    time.Time `json:"unsent,omitzero"` // time of the oldest booking not yet forwarded to the federation
}
