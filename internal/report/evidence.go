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

// Evidence contains the records of decisions and the booked consumption that savings are computed from.
type Evidence struct {
	Records []ledger.Record // of the period, and holds from before it, in any order
	UIDs    *ledger.Answer  // by uid; nil if uids are not kept that long
	Owners  *ledger.Answer  // by namespace and owner; nil if not requested
	Sites   *ledger.Answer  // by site and hour; nil if not requested
}

// Queries returns the ledger queries for [Evidence] that match the period and the namespaces of q.
func Queries(q *ledger.Query) (uids, owners, sites ledger.Query) {
	base := ledger.Query{
		From: q.From, To: q.To, Namespaces: q.Namespaces, Kinds: ledger.Workloads(),
		Clusters: []string{ledger.OwnCluster}, // a Job with the same name in another cluster is a different Job
	}
	uids, owners = base, base
	uids.GroupBy = []ledger.Dimension{ledger.ByUID}
	owners.GroupBy = []ledger.Dimension{ledger.ByNamespace, ledger.ByOwner}
	return uids, owners, ledger.Query{
		// Work that would have started earlier is rated at the intensity of that time.
		From: q.From.Add(-HoldsBefore), To: q.To, GroupBy: []ledger.Dimension{ledger.BySite, ledger.ByHour},
	}
}

// HoldsBefore is how long before the start of the period holds are searched.
const HoldsBefore = 7 * 24 * time.Hour

// ownerKey identifies an owner.
type ownerKey struct{ namespace, owner string }

// found is an index of evidence.
type found struct {
	uids, owners map[string]*ledger.Row // by their joined keys
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

// measured returns the consumption of a job, which is the sum over its pods. If the ledger no longer keeps pods, it
// returns the consumption that was charged to the job by name.
func (f *found) measured(j *job) (sum ledger.Row, ok bool) {
	pods := j.places
	if len(pods) == 0 {
		pods = []*ledger.Record{j.release} // the UID is that of a pod if the pod itself was held
	}
	for _, p := range pods {
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

// rateKey identifies a carbon intensity or a price: a signal or a currency at a site in an hour.
type rateKey struct {
	site, of string
	hour     int64 // Unix time
}

// readRates returns the booked carbon intensities in gCO2e per kWh and prices per kWh of sites by hour.
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
		// If there are several signals or currencies, the ledger does not record which part of the energy each
		// applies to.
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

// bookedMean returns the mean rate over an interval. ok is false if the rate of any hour is unknown.
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

// maxUnpacked limits the size of a snapshot. A snapshot of 64 nodes is far smaller.
const maxUnpacked = 16 << 20

// ReadSnapshot returns the snapshot that a decision was made on. It returns an error if the digest does not match.
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
		return nil, errors.New("the snapshot does not contain exactly one job")
	}
	return s, nil
}

// Unpacked returns the snapshot of a record in JSON, as it was recorded.
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
		return nil, fmt.Errorf("the snapshot of record %s does not match its digest", r.ID)
	}
	return data, nil
}
