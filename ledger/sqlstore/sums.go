package sqlstore

import "github.com/kubenergy/kubenergy/ledger"

// An accountSum is a row of account_hours or account_days.
type accountSum struct {
	start, account int64
	ledger.Amount
	first, last int64 // Unix seconds
}

func (s *accountSum) crc() int64 {
	return rowCRC(s.start, s.account, int64(s.Dynamic), int64(s.Idle), int64(s.CPU), int64(s.Facility), int64(s.Carbon),
		int64(s.Cost),
		int64(s.Estimated), int64(s.Uncharted), int64(s.Unpriced), s.first, s.last)
}

// empty says that all of it was taken back.
func (s *accountSum) empty() bool { return s.Amount == ledger.Amount{} }

// A nodeKey is what a row of node_hours or node_days is about.
type nodeKey struct {
	start, node                  int64
	host, site, signal, currency string
}

// A nodeSum is the rest of it.
type nodeSum struct {
	measured, dynamic, shared, cpu int64 // shared: idle energy of consumers; cpu in nanoseconds
	idle, platform, unknown        int64
	facility, carbon, cost         int64
	estimated, uncharted, unpriced int64
	unmeasured                     int64 // nanoseconds
	first, last                    int64
}

func (s *nodeSum) crc(k *nodeKey) int64 {
	return rowCRC(k.start, k.node, k.host, k.site, k.signal, k.currency, s.measured, s.dynamic, s.shared, s.cpu, s.idle,
		s.platform, s.unknown,
		s.facility, s.carbon, s.cost, s.estimated, s.uncharted, s.unpriced, s.unmeasured, s.first, s.last)
}

func (s *nodeSum) empty() bool {
	return *s == nodeSum{first: s.first, last: s.last}
}

// add books a posting of an account of a kind.
func (s *nodeSum) add(kind ledger.Kind, a *ledger.Amount) {
	e := int64(a.Energy())
	switch kind {
	case ledger.Transfer:
		return // it is the host's
	case ledger.Idle:
		s.idle += e
	case ledger.Platform:
		s.platform += e
	case ledger.Unknown:
		s.unknown += e
	default:
		s.dynamic += int64(a.Dynamic)
		s.shared += int64(a.Idle)
	}
	s.measured += e
	s.cpu += int64(a.CPU)
	s.facility += int64(a.Facility)
	s.carbon += int64(a.Carbon)
	s.cost += int64(a.Cost)
	s.estimated += int64(a.Estimated)
	s.uncharted += int64(a.Uncharted)
	s.unpriced += int64(a.Unpriced)
}

func (s *nodeSum) merge(o *nodeSum) {
	s.measured += o.measured
	s.dynamic += o.dynamic
	s.shared += o.shared
	s.cpu += o.cpu
	s.idle += o.idle
	s.platform += o.platform
	s.unknown += o.unknown
	s.facility += o.facility
	s.carbon += o.carbon
	s.cost += o.cost
	s.estimated += o.estimated
	s.uncharted += o.uncharted
	s.unpriced += o.unpriced
	s.unmeasured += o.unmeasured
	s.first, s.last = min(s.first, o.first), max(s.last, o.last)
}
