package server

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/kubenergy/kubenergy/internal/controller/instrument"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

// FolderOptions are the options of a [Folder].
type FolderOptions struct {
	Dir        string
	Now        func() time.Time
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// Folder writes bookings and decisions to CSV files, in addition to the ledger. Booked and Recorded never block on
// disk I/O. Rows that do not fit into the queue or cannot be written are dropped and counted in a metric.
//
//   - metrics_<time>.csv: a row for each batch and for each of its consumers
//   - schedule_log.csv: a row for each placed pod; older files are renamed to schedule_log_<time>.csv
type Folder struct {
	o           FolderOptions
	maxBytes    int64 // maximum size of a file
	maxFiles    int   // maximum number of files per table
	queue       chan rows
	lost        *prometheus.CounterVec
	written     prometheus.Counter
	metrics     table
	log         table
	queueFull   rate.Sometimes // throttles the log message of a full queue
	writeFailed rate.Sometimes // throttles the log message of failed writes
}

// rows are queued rows of a table. They are built by the writer to keep the caller fast.
type rows struct {
	table *table
	make  func() [][]string
	count int
}

const (
	maxFileBytes = 64 << 20
	maxFiles     = 30
	maxQueued    = 4096 // calls of Booked and Recorded
	stampLayout  = "20060102T150405Z.csv"
	retryFolder  = 10 * time.Second
	notifyFolder = time.Minute
)

// NewFolder returns a Folder. It creates the directory if it does not exist.
func NewFolder(o FolderOptions) (*Folder, error) {
	if err := os.MkdirAll(o.Dir, 0o750); err != nil {
		return nil, fmt.Errorf("creating the data folder: %w", err)
	}
	with := instrument.With(o.Registerer)
	f := &Folder{
		o: o, maxBytes: maxFileBytes, maxFiles: maxFiles, queue: make(chan rows, maxQueued),
		lost: with.Counters("kubenergy_data_folder_lost_total",
			"Number of bookings and decisions missing in the data folder, by reason: queue or write.", "reason"),
		written: with.Counter("kubenergy_data_folder_rows_total", "Number of rows written to the data folder."),
		metrics: table{prefix: "metrics_", head: metricsHead},
		log:     table{prefix: "schedule_log_", current: "schedule_log.csv", head: scheduleHead},

		queueFull: rate.Sometimes{Interval: notifyFolder}, writeFailed: rate.Sometimes{Interval: notifyFolder},
	}
	for _, reason := range []string{lostQueue, lostWrite} {
		f.lost.WithLabelValues(reason)
	}
	return f, nil
}

const (
	lostQueue = "queue"
	lostWrite = "write"
)

// Booked queues the rows of a booking. It never blocks.
func (f *Folder) Booked(b *ledger.Booking, _ ledger.Receipt) {
	f.put(rows{&f.metrics, func() [][]string { return metricsRows(b) }, 1})
}

// Recorded queues the rows of decisions. It never blocks.
func (f *Folder) Recorded(records []ledger.Record) {
	made := scheduleRows(records)
	if len(made) > 0 {
		f.put(rows{&f.log, func() [][]string { return made }, len(made)})
	}
}

func (f *Folder) put(r rows) {
	select {
	case f.queue <- r:
	default:
		f.lost.WithLabelValues(lostQueue).Add(float64(r.count))
		f.queueFull.Do(func() {
			f.o.Log.Warn("Dropped rows because the queue of the data folder is full", "dir", f.o.Dir)
		})
	}
}

// Run writes queued rows until ctx is done. It writes the remaining rows before it returns.
func (f *Folder) Run(ctx context.Context) error {
	defer f.metrics.close()
	defer f.log.close()
	for {
		select {
		case r := <-f.queue:
			f.write(r)
		case <-ctx.Done():
			for len(f.queue) > 0 {
				f.write(<-f.queue)
			}
			return nil
		}
	}
}

func (f *Folder) write(r rows) {
	t, now := r.table, f.o.Now().UTC()
	if age := now.Sub(t.broken); !t.broken.IsZero() && age >= 0 && age < retryFolder {
		f.lost.WithLabelValues(lostWrite).Add(float64(r.count))
		return
	}
	all := r.make()
	err := f.open(t, now)
	if err == nil {
		err = t.write(all)
	}
	if err == nil {
		t.broken = time.Time{}
		f.written.Add(float64(len(all)))
		return
	}
	f.lost.WithLabelValues(lostWrite).Add(float64(r.count))
	t.close()
	t.broken = now
	f.writeFailed.Do(func() { f.o.Log.Error("Failed to write to the data folder", "dir", f.o.Dir, "error", err) })
}
