package ledger

import (
	"cmp"
	"context"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
)

// A Store keeps a ledger. Several processes may use one store at once; its transactions keep them apart.
type Store interface {
	// Book writes bookings in one transaction. The errors are those of single bookings, nil for those that are
	// booked; err says that none is. Book of nothing writes too: it tells if that is possible.
	Book(ctx context.Context, all []*Booking) (receipts []Receipt, errs []error, err error)
	// Acked returns the highest number of a stream that is booked, and if any is.
	Acked(ctx context.Context, of batch.Stream) (acked uint64, known bool, err error)
	// Reported returns how much time the agent of a node has told of, over all of its boots.
	Reported(ctx context.Context, node string) (Reported, error)
	// Fold moves what the journal holds, some of it if there is much, into windows and sums. It returns how many
	// bookings are left of those that there were when it began.
	Fold(ctx context.Context) (left int, err error)
	Query(ctx context.Context, q *Query) (*Answer, error)
	// Series returns the power of what a query selects, window by window; GroupBy is ignored.
	Series(ctx context.Context, q *Query) ([]Point, error)
	// Temperatures returns how hot nodes were, or one that is named, hour by hour.
	Temperatures(ctx context.Context, from, to time.Time, node string) ([]Temperature, error)
	Record(ctx context.Context, records []Record) error
	Records(ctx context.Context, q *RecordQuery) ([]Record, error)
	// Keep drops what is older than it is kept for. A clock that is far ahead of what was booked is not believed.
	Keep(ctx context.Context, r Retention, now time.Time) error
	// Audit compares what was booked by consumer with what was booked by node, and checks sums of bytes, from an
	// instant on.
	Audit(ctx context.Context, from time.Time) (*Findings, error)
	Statistics(ctx context.Context) (Statistics, error)
	// Gauges returns what of the statistics is found out without counting rows that were folded: Journal and Bytes.
	Gauges(ctx context.Context) (Statistics, error)
	Close() error
}

// Reported is the time that is booked of a node, told by its agent.
type Reported struct {
	Time  time.Duration // over all boots
	Since time.Time     // when the node came to be, as its first booking said; zero: there is none
	Seen  Seen          // what its Node said at first that it has
}

// Seen is what a Node said that it has when that was first booked. Kubelets write it: they cannot widen later what
// their node is believed to draw. A Node that is deleted and made anew is seen anew.
type Seen struct {
	Made  int64 // when the Node was made, in Unix seconds; 0: it is none
	Cores int64 // 0: none was said yet
	GPUs  int64
	Bytes int64 // of memory
}

// Add returns what is known of a node once its Node says more.
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

// Temperature is how hot a node was in an hour, as its agent told with each batch.
type Temperature struct {
	Hour    time.Time      `json:"hour"` // its beginning
	Node    string         `json:"node"`
	Mean    energy.Celsius `json:"meanCelsius"`
	Max     energy.Celsius `json:"maxCelsius"`
	Samples int64          `json:"samples"`
}

// Retention says for how long things are kept. 0: for good.
type Retention struct {
	Windows   time.Duration // five minutes by node and pod
	Hours     time.Duration
	Days      time.Duration
	Records   time.Duration
	Snapshots time.Duration // of records
	Streams   time.Duration // acknowledged numbers of streams that send nothing; at least a year
}

// Findings are what an audit found wrong; empty if everything balances.
type Findings struct {
	Checked  int // rows
	Problems []string
}

// Statistics are about the store itself.
type Statistics struct {
	Journal   int       `json:"journal"`         // bookings that are not folded into sums yet
	Oldest    time.Time `json:"oldest,omitzero"` // of them; zero if there is none
	Bytes     int64     `json:"bytes"`           // on disk
	Windows   int64     `json:"windows"`
	Accounts  int64     `json:"accounts"`
	Consumers int64     `json:"consumers"`
	Records   int64     `json:"records"`
	Schema    int       `json:"schema"`
	Unsent    time.Time `json:"unsent,omitzero"` // when the oldest was booked that the federation does not have
}
