package server

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/ledger"
)

var metricsHead = []string{
	"Timestamp", "Node", "Start", "End", "Kind", "Namespace", "Pod", "Consumer", "Energy_uJ", "Dynamic_uJ", "Idle_uJ",
	"CPU_ns", "Platform_uJ", "Unknown_uJ", "Unmeasured_ns", "Quality", "Source", "CarbonIntensity_gPerKWh",
	"Price_perKWh", "PUE", "Agentless",
}

var scheduleHead = []string{"JobID", "AssignedNode", "Strategy", "CIscore", "Timestamp"}

// metricsRows are a row for a batch, and one for each consumer of it: containers of a pod are one.
func metricsRows(b *ledger.Booking) [][]string {
	stamp := b.Received.UTC().Format(time.RFC3339Nano)
	start, end := b.Batch.Start.UTC().Format(time.RFC3339Nano), b.Batch.End.UTC().Format(time.RFC3339Nano)
	common := []string{
		b.Batch.Quality.String(), cell(b.Batch.Source), number(b.Rates.Carbon), number(b.Rates.Price),
		number(b.Rates.PUE), strconv.FormatBool(b.Agentless),
	}
	row := func(kind, namespace, pod, consumer string, total, dynamic, idle energy.Microjoules, cpu time.Duration,
		rest ...string,
	) []string {
		if rest == nil {
			rest = []string{"", "", ""}
		}
		r := []string{
			stamp, cell(b.Batch.Stream.Node), start, end, kind, cell(namespace), cell(pod), cell(consumer),
			whole(int64(total)), whole(int64(dynamic)), whole(int64(idle)), whole(int64(cpu)),
		}
		return append(append(r, rest...), common...)
	}
	all := [][]string{row("node", "", "", "", b.Batch.Measured, b.Batch.Measured-b.Batch.Idle, b.Batch.Idle, 0,
		whole(int64(b.Batch.Platform)), whole(int64(b.Batch.Unknown)), whole(int64(b.Batch.Unmeasured)))}
	shares := b.Batch.Shares
	for i := 0; i < len(shares) && i < len(b.Consumers); {
		c, sum := b.Consumers[i], shares[i]
		i++
		for ; i < len(shares) && i < len(b.Consumers) && b.Consumers[i].Key == c.Key; i++ {
			sum.Dynamic += shares[i].Dynamic
			sum.Idle += shares[i].Idle
			sum.CPU += shares[i].CPU
		}
		all = append(all, row(c.Account.Kind.String(), c.Account.Namespace, c.Pod, c.Key, sum.Dynamic+sum.Idle,
			sum.Dynamic, sum.Idle, sum.CPU))
	}
	return all
}

func whole(n int64) string { return strconv.FormatInt(n, 10) }

// number writes what is known; NaN is not.
func number(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return ""
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

// scheduleRows are the pods that were placed.
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
			cell(r.Namespace + "/" + r.Owner), cell(r.Node), cell(r.Strategy), score,
			r.At.UTC().Format(time.RFC3339Nano),
		})
	}
	return all
}

// cell keeps spreadsheets from taking a text of a stranger for a formula, and lines apart.
func cell(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text)
	trimmed := strings.TrimLeft(text, " ")
	if trimmed != "" && strings.ContainsRune("=+-@＝＋－＠", []rune(trimmed)[0]) {
		return "'" + text
	}
	return text
}
