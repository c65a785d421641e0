package exposition

import (
	"strconv"
	"strings"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// text is a page of metrics that is being written, in Prometheus' text format or in OpenMetrics, which differ in
// little.
type text struct {
	b           []byte
	openMetrics bool
	node        []byte // the node's label
}

// head begins a metric: a counter if it is called a total, a gauge otherwise.
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

// sample begins a series: its labels, and what comes after them. A value follows.
func (t *text) sample(name string, labels []byte, more string) *text {
	t.b = append(t.b, name...)
	if len(labels)+len(more) > 0 {
		t.b = append(append(append(append(t.b, '{'), labels...), more...), '}')
	}
	t.b = append(t.b, ' ')
	return t
}

// one begins a metric whose only series is the node's.
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

// joules, seconds: decimal fractions, written exactly. Prometheus keeps 53 bits of them, which is every microjoule
// below 9 GJ.
func (t *text) joules(v energy.Microjoules) { t.decimal(int64(v), 6) }
func (t *text) seconds(v time.Duration)     { t.decimal(int64(v), 9) }

func (t *text) decimal(v int64, digits int) { t.b = append(energy.AppendDecimal(t.b, v, digits), '\n') }
