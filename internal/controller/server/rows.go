package server

import (
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/kubenergy/kubenergy/internal/humanize"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

var metricsHead = []string{
	"Timestamp", "Node", "Start", "End", "Kind", "Namespace", "Pod", "Consumer", "Energy_uJ", "Dynamic_uJ", "Idle_uJ",
	"CPU_ns", "Platform_uJ", "Unknown_uJ", "Unmeasured_ns", "Quality", "Source", "CarbonIntensity_gPerKWh",
	"Price_perKWh", "PUE", "Agentless",
}

var scheduleHead = []string{"JobID", "AssignedNode", "Strategy", "CIscore", "Timestamp"}

// metricsRows returns a row for the node and a row for each consumer of a batch. The containers of a pod share a
// row.
func metricsRows(b *ledger.Booking) [][]string {
	stamp := b.Received.UTC().Format(time.RFC3339Nano)
	start, end := b.Batch.Start.UTC().Format(time.RFC3339Nano), b.Batch.End.UTC().Format(time.RFC3339Nano)
	common := []string{
		b.Batch.Quality.String(), humanize.CSVCell(b.Batch.Source), number(b.Rates.Carbon), number(b.Rates.Price),
		number(b.Rates.PUE), strconv.FormatBool(b.Agentless),
	}
	row := func(kind string, p *ledger.Posting, rest ...string) []string {
		c, a := &p.Consumer, &p.Amount
		return slices.Concat([]string{
			stamp, humanize.CSVCell(b.Batch.Stream.Node), start, end, kind,
			humanize.CSVCell(c.Account.Namespace), humanize.CSVCell(c.Pod), humanize.CSVCell(c.Key),
			whole(int64(a.Energy())), whole(int64(a.Dynamic)), whole(int64(a.Idle)), whole(int64(a.CPU)),
		}, rest, common)
	}
	node := ledger.Posting{Amount: ledger.Amount{Dynamic: b.Batch.Measured - b.Batch.Idle, Idle: b.Batch.Idle}}
	all := [][]string{row("node", &node, whole(int64(b.Batch.Platform)), whole(int64(b.Batch.Unknown)),
		whole(int64(b.Batch.Unmeasured)))}
	for p := range b.Postings() {
		switch kind := p.Consumer.Account.Kind; kind {
		case ledger.Idle, ledger.Asleep, ledger.Booting, ledger.Platform, ledger.Unknown: // not assigned to a consumer
		default:
			all = append(all, row(kind.String(), p, "", "", ""))
		}
	}
	return all
}

func whole(n int64) string { return strconv.FormatInt(n, 10) }

// number formats v. It returns an empty string if v is NaN or infinite.
func number(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return ""
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

// scheduleRows returns a row for each record of a placed pod.
func scheduleRows(records []ledger.Record) [][]string {
	var all [][]string
	for i := range records {
		r := &records[i]
		if r.Action != "place" {
			continue
		}
		score := ""
		if r.Intensity > 0 {
			score = number(r.Intensity)
		}
		all = append(all, []string{
			humanize.CSVCell(r.Namespace + "/" + r.Owner), humanize.CSVCell(r.Node), humanize.CSVCell(r.Strategy),
			score, r.At.UTC().Format(time.RFC3339Nano),
		})
	}
	return all
}
