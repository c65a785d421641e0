package grid

import "time"

// sampled reports whether the value that begins at t is one of those to keep, where a file is to be read in coarser
// steps than it has. Let's Wait Awhile takes every second quarter of an hour so. A value then stands for the whole of
// its new step: what lay between is left out, not averaged, since published figures were computed that way.
func (o *CSVOptions) sampled(t time.Time) bool {
	return o.Every <= 0 || t.Truncate(o.Every).Equal(t)
}
