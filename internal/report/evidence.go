package report

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/codec"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// Evidence is what the ledger knows of decisions and of what came of them.
type Evidence struct {
	Records []ledger.Record // of the time in question, and holds from before it; in any order
	UIDs    *ledger.Answer  // by uid; nil: not kept for so long
	Owners  *ledger.Answer  // by namespace and owner; nil: not asked for
	Sites   *ledger.Answer  // by site and hour; nil: not asked for
}

// Queries returns what [Evidence] needs of a ledger, for the time and the namespaces of a query.
func Queries(q *ledger.Query) (uids, owners, sites ledger.Query) {
	base := ledger.Query{
		From: q.From, To: q.To, Namespaces: q.Namespaces, Kinds: ledger.Workloads(),
		Clusters: []string{ledger.OwnCluster}, // whose decisions they are: another's Job of that name is another Job
	}
	uids, owners = base, base
	uids.GroupBy = []ledger.Dimension{ledger.ByUID}
	owners.GroupBy = []ledger.Dimension{ledger.ByNamespace, ledger.ByOwner}
	return uids, owners, ledger.Query{
		// What would have run earlier would have run at the intensity of that time.
		From: q.From.Add(-HoldsBefore), To: q.To, GroupBy: []ledger.Dimension{ledger.BySite, ledger.ByHour},
	}
}

// HoldsBefore is how long before the time in question holds are looked for.
const HoldsBefore = 7 * 24 * time.Hour

// ownerKey is what an owner is found by.
type ownerKey struct{ namespace, owner string }

// found is evidence that can be looked up.
type found struct {
	uids, owners map[string]*ledger.Row // by their keys, joined
	rates        map[rateKey]float64
	asOf         time.Time
}

func (e *Evidence) index() *found {
	f := &found{uids: map[string]*ledger.Row{}, owners: map[string]*ledger.Row{}, rates: readRates(e.Sites)}
	for answer, rows := range map[*ledger.Answer]map[string]*ledger.Row{e.UIDs: f.uids, e.Owners: f.owners} {
		if answer == nil {
			continue
		}
		f.asOf = timeutil.Later(f.asOf, answer.AsOf)
		for i := range answer.Rows {
			if key := answer.Rows[i].Key; len(key) > 0 && key[len(key)-1] != "" {
				rows[joinKey(key...)] = &answer.Rows[i]
			}
		}
	}
	return f
}

// measured returns what a job used: the sum over its pods, or what was charged to it by name where pods are not
// remembered.
func (f *found) measured(j *job) (sum ledger.Row, ok bool) {
	for _, p := range j.places {
		if row := f.uids[joinKey(p.UID)]; row != nil {
			sum.Include(row)
			ok = true
		}
	}
	if ok {
		return sum, true
	}
	if row := f.owners[joinKey(j.key.namespace, j.key.owner)]; row != nil && j.short() {
		return *row, true
	}
	return sum, false
}

// rateKey says of what a rate is: a signal or a currency at a site.
type rateKey struct {
	site, of string
	hour     int64 // Unix
}

// readRates returns carbon intensities in gCO2e per kWh, and prices per kWh, of sites as they were booked, by hour.
func readRates(a *ledger.Answer) map[rateKey]float64 {
	r := map[rateKey]float64{}
	if a == nil {
		return r
	}
	for _, row := range a.Rows {
		if len(row.Key) != 2 {
			continue
		}
		hour, err := time.Parse(time.RFC3339, row.Key[1])
		if err != nil {
			continue
		}
		// With several signals or currencies it is not known what part of the energy each is about.
		if signals := row.Signals(); len(signals) == 1 && row.Facility > row.Uncharted {
			r[rateKey{row.Key[0], signals[0], hour.Unix()}] = float64(row.Emissions[signals[0]].Grams()) /
				kWh(row.Facility-row.Uncharted)
		}
		if currencies := row.Currencies(); len(currencies) == 1 && row.Facility > row.Unpriced {
			r[rateKey{row.Key[0], currencies[0], hour.Unix()}] = row.Costs[currencies[0]].Money() /
				kWh(row.Facility-row.Unpriced)
		}
	}
	return r
}

// bookedMean returns the mean of rates over an interval. ok is false if that of any hour is not known.
func bookedMean(all map[rateKey]float64, site, of string, w sched.Window) (rate float64, ok bool) {
	from, to := w.Start, w.End
	if !to.After(from) {
		return 0, false
	}
	var sum float64
	for hour := from.UTC().Truncate(time.Hour); hour.Before(to); hour = hour.Add(time.Hour) {
		value, known := all[rateKey{site, of, hour.Unix()}]
		if !known {
			return 0, false
		}
		begin, end := timeutil.Later(hour, from), timeutil.Earlier(hour.Add(time.Hour), to)
		sum += value * end.Sub(begin).Seconds()
	}
	return sum / to.Sub(from).Seconds(), true
}

func kWh(e energy.Microjoules) float64 { return e.Joules().KWh() }

// maxUnpacked is far above what a snapshot of 64 nodes has.
const maxUnpacked = 16 << 20

// ReadSnapshot returns what a decision was made on. Whether it is what was recorded then, its digest says.
func ReadSnapshot(r *ledger.Record) (*sched.Snapshot, error) {
	data, err := Unpacked(r)
	if err != nil {
		return nil, err
	}
	s, err := codec.Decode(data)
	if err != nil {
		return nil, fmt.Errorf("record %s: %w", r.ID, err)
	}
	if len(s.Queue) != 1 {
		return nil, errors.New("the snapshot is not of one job")
	}
	return s, nil
}

// Unpacked returns the snapshot of a record as it was written, in JSON.
func Unpacked(r *ledger.Record) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(r.Snapshot))
	if err != nil {
		return nil, fmt.Errorf("unpacking the snapshot of record %s: %w", r.ID, err)
	}
	data, err := io.ReadAll(io.LimitReader(z, maxUnpacked+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("unpacking the snapshot of record %s: %w", r.ID, err)
	case len(data) > maxUnpacked:
		return nil, fmt.Errorf("the snapshot of record %s is too large", r.ID)
	case codec.Digest(data) != r.Digest:
		return nil, fmt.Errorf("the snapshot of record %s has another digest", r.ID)
	}
	return data, nil
}
