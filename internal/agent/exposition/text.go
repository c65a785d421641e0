package exposition

import (
	"strconv"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// text is a page of metrics in the Prometheus text format or in OpenMetrics, which are very similar.
type text struct {
	b           []byte
	openMetrics bool
	node        []byte // label of the node
}

// head starts a metric family: a counter if the name ends with _total, otherwise a gauge.
func (t *text) head(name, help string) {
	kind := "gauge"
	if strings.HasSuffix(name, "_total") {
		kind = "counter"
	}
	t.announce(name, kind, help)
}

func (t *text) announce(name, kind, help string) {
	if t.openMetrics {
		name = strings.TrimSuffix(name, "_total")
	}
	t.b = append(append(append(append(append(t.b, "# HELP "...), name...), ' '), help...), '\n')
	t.b = append(append(append(append(append(t.b, "# TYPE "...), name...), ' '), kind...), '\n')
}

// sample starts a series with the given labels. It must be followed by a value.
func (t *text) sample(name string, labels []byte, more string) *text {
	t.b = append(t.b, name...)
	if len(labels)+len(more) > 0 {
		t.b = append(append(append(append(t.b, '{'), labels...), more...), '}')
	}
	t.b = append(t.b, ' ')
	return t
}

// one starts a metric family with the node's label only.
func (t *text) one(name, help string) *text {
	t.head(name, help)
	return t.sample(name, t.node, "")
}

func (t *text) count(v uint64) {
	t.b = append(strconv.AppendUint(t.b, v, 10), '\n')
}

func (t *text) flag(v bool) {
	if v {
		t.count(1)
	} else {
		t.count(0)
	}
}

func (t *text) float(v float64) {
	t.b = append(strconv.AppendFloat(t.b, v, 'g', -1, 64), '\n')
}

// joules and seconds append exact decimal fractions. Prometheus stores 53 bits, which is sufficient for every
// microjoule below 9 GJ.
func (t *text) joules(v energy.Microjoules) { t.decimal(int64(v), 6) }
func (t *text) seconds(v time.Duration)     { t.decimal(int64(v), 9) }

func (t *text) decimal(v int64, digits int) { t.b = append(energy.AppendDecimal(t.b, v, digits), '\n') }
