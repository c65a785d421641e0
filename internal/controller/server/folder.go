package server

import (
	"cmp"
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

// FolderOptions say where tables are written, and how much of them.
type FolderOptions struct {
	Dir        string
	MaxBytes   int64 // of a file; 0: 64 MiB
	MaxFiles   int   // of each kind, the youngest; 0: 30
	Queue      int   // bookings and calls of Recorded that wait; 0: 4096
	Now        func() time.Time
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// A Folder writes what is booked and decided as tables, beside the ledger and not instead of it: nothing waits
// for its disk. What the queue has no room for, and what could not be written, is missing there and
// counted.
//
//   - metrics_<time>.csv: a row for each batch, one for each of its consumers
//   - schedule_log.csv: a row for each pod that was placed; older ones are schedule_log_<time>.csv
type Folder struct {
	o           FolderOptions
	queue       chan rows
	lost        *prometheus.CounterVec
	written     prometheus.Counter
	metrics     table
	log         table
	queueFull   rate.Sometimes // throttles the log of rows dropped because the queue is full
	writeFailed rate.Sometimes // throttles the log of rows dropped because a write failed
}

// rows are rows of one table; they are made when they are written.
type rows struct {
	table *table
	make  func() [][]string
	count int
}

const (
	defaultFileBytes = 64 << 20
	defaultFiles     = 30
	defaultQueue     = 4096
	stampLayout      = "20060102T150405Z.csv"
	retryFolder      = 10 * time.Second
	notifyFolder     = time.Minute
)

// NewFolder returns a Folder; the folder is made if it is not there.
func NewFolder(o FolderOptions) (*Folder, error) {
	o.MaxBytes, o.MaxFiles, o.Queue = cmp.Or(o.MaxBytes, defaultFileBytes), cmp.Or(o.MaxFiles, defaultFiles),
		cmp.Or(o.Queue, defaultQueue)
	if err := os.MkdirAll(o.Dir, 0o750); err != nil {
		return nil, fmt.Errorf("making the data folder: %w", err)
	}
	with := instrument.With(o.Registerer)
	f := &Folder{
		o: o, queue: make(chan rows, o.Queue),
		lost: with.Counters("kubenergy_data_folder_lost_total",
			"Bookings and decisions that are not in the data folder, by why: queue or write.", "reason"),
		written: with.Counter("kubenergy_data_folder_rows_total", "Rows written into the data folder."),
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

// Booked takes note of a booking. It never waits.
func (f *Folder) Booked(b *ledger.Booking, _ ledger.Receipt) {
	f.put(rows{&f.metrics, func() [][]string { return metricsRows(b) }, 1})
}

// Recorded takes note of decisions. It never waits.
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
			f.o.Log.Warn("the data folder is too slow: rows will be missing", "dir", f.o.Dir)
		})
	}
}

// Run writes until ctx ends, and then what is still waiting.
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
	f.writeFailed.Do(func() { f.o.Log.Error("writing into the data folder", "dir", f.o.Dir, "error", err) })
}
