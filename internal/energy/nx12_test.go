package energy_test

import (
	"compress/gzip"
	"encoding/csv"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

func machineColumns(t *testing.T, name string, columns ...string) [][]float64 {
	t.Helper()
	path := filepath.Join(filepath.FromSlash("../../../shared/data/power"), name)
	file, err := os.Open(path)
	if os.IsNotExist(err) {
		t.Skipf("skipping the measured machine: %s does not exist", path)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	text, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	records, err := csv.NewReader(text).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	index := map[string]int{}
	for i, column := range records[0] {
		index[column] = i
	}
	rows := make([][]float64, len(records)-1)
	for i, record := range records[1:] {
		for _, column := range columns {
			k, ok := index[column]
			if !ok {
				t.Fatalf("%s has no column %s", name, column)
			}
			v, err := strconv.ParseFloat(record[k], 64)
			if err != nil {
				t.Fatal(err)
			}
			rows[i] = append(rows[i], v)
		}
	}
	return rows
}

// A machineRow covers 3 s of a machine: its CPU time as utilisation of 32 CPUs, the RAPL power of packages and
// memory, and the power of the platform from its ACPI meter. Contrary to its name, the CPU column counts
// milliseconds per second, because its values reach 29,170 while the kubelet reports 32 CPUs.
type machineRow struct{ load, rapl, platform float64 }

const raplScale = 300 // W; never reached

func machineRows(t *testing.T) []machineRow {
	t.Helper()
	rapl := machineColumns(t, "kepler_nx12_rapl.csv.gz", "timestamp", "bpf_cpu_time_us", "package_power", "dram_power")
	acpi := machineColumns(t, "kepler_nx12_acpi_platform.csv.gz", "timestamp", "platform_power")
	if len(rapl) != len(acpi) || len(rapl) < 2000 {
		t.Fatalf("got %d rows of RAPL and %d rows of the platform", len(rapl), len(acpi))
	}
	rows := make([]machineRow, len(rapl))
	for i := range rows {
		if rapl[i][0] != acpi[i][0] {
			t.Fatalf("row %d: timestamps %v and %v differ", i, rapl[i][0], acpi[i][0])
		}
		rows[i] = machineRow{load: rapl[i][1] / 32_000, rapl: rapl[i][2] + rapl[i][3], platform: acpi[i][1]}
	}
	return rows
}

// fitLeastSquares returns the least-squares coefficients of the columns of x.
func fitLeastSquares(x [][]float64, y []float64) []float64 {
	n := len(x[0])
	a := make([][]float64, n)
	for i := range a {
		a[i] = make([]float64, n+1)
		for r := range x {
			for j := range n {
				a[i][j] += x[r][i] * x[r][j]
			}
			a[i][n] += x[r][i] * y[r]
		}
	}
	for c := range n {
		for i := range n {
			if i == c {
				continue
			}
			factor := a[i][c] / a[c][c]
			for j := range n + 1 {
				a[i][j] -= factor * a[c][j]
			}
		}
	}
	b := make([]float64, n)
	for i := range b {
		b[i] = a[i][n] / a[i][i]
	}
	return b
}

// linearModel is the conventional model of platform power: a constant, RAPL power and utilisation, each with a
// coefficient.
func linearModel(rows []machineRow) func(machineRow) float64 {
	var x [][]float64
	var y []float64
	for _, r := range rows {
		x, y = append(x, []float64{1, r.rapl, r.load}), append(y, r.platform)
	}
	b := fitLeastSquares(x, y)
	return func(r machineRow) float64 { return b[0] + b[1]*r.rapl + b[2]*r.load }
}

// fittedModel is a Fit of platform power over RAPL power. Its residuals, without outliers, are modelled as linear
// in utilisation.
func fittedModel(rows []machineRow) func(machineRow) float64 {
	fit := energy.NewFit(nil)
	for _, r := range rows {
		fit.Add(r.rapl/raplScale, energy.Watts(r.platform), 3*time.Second)
	}
	var x [][]float64
	var y []float64
	for _, r := range rows {
		if rest := r.platform - float64(fit.Predict(r.rapl/raplScale)); math.Abs(rest) < 10 {
			x, y = append(x, []float64{1, r.load}), append(y, rest)
		}
	}
	b := fitLeastSquares(x, y)
	return func(r machineRow) float64 { return float64(fit.Predict(r.rapl/raplScale)) + b[0] + b[1]*r.load }
}

type modelErrors struct{ abs, square, part, n float64 }

func (e *modelErrors) add(predicted, measured float64) {
	d := math.Abs(predicted - measured)
	e.abs += d
	e.square += d * d
	e.part += d / measured
	e.n++
}

func (e *modelErrors) mae() float64  { return e.abs / e.n }
func (e *modelErrors) rmse() float64 { return math.Sqrt(e.square / e.n) }
func (e *modelErrors) mape() float64 { return 100 * e.part / e.n }

func (e *modelErrors) String() string {
	return fmt.Sprintf("MAE %.2f W, RMSE %.2f W, MAPE %.2f %%", e.mae(), e.rmse(), e.mape())
}

// The platform power of a measured machine is predicted out of sample: the 6,603 s are divided into blocks, and
// each block is predicted by models of the other blocks. Most of the residual error is in rows in which the load
// changes. There, RAPL and the lagging ACPI meter cover different seconds, which a model of single rows cannot
// correct.
func TestMeasuredMachine(t *testing.T) {
	rows := machineRows(t)
	for _, blocks := range []int{2, 5, 10} {
		var ours, linear modelErrors
		for b := range blocks {
			from, to := len(rows)*b/blocks, len(rows)*(b+1)/blocks
			train := slices.Concat(rows[:from], rows[to:])
			fitted, usual := fittedModel(train), linearModel(train)
			for _, r := range rows[from:to] {
				ours.add(fitted(r), r.platform)
				linear.add(usual(r), r.platform)
			}
		}
		t.Logf("%2d blocks: ours   %v", blocks, &ours)
		t.Logf("           linear %v", &linear)
		if ours.mae() > .85*linear.mae() || ours.rmse() > 1.02*linear.rmse() || ours.mape() > .85*linear.mape() {
			t.Errorf("%d blocks: errors are %v, want less than %v of a linear model", blocks, &ours, &linear)
		}
		if ours.mae() > 5.5 || ours.rmse() > 12 || ours.mape() > 2.3 {
			t.Errorf("%d blocks: errors are %v", blocks, &ours)
		}
	}
}
