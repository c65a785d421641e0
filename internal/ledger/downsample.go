package ledger

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// ways maps the names of downsampling algorithms to their implementations.
var ways = map[string]func([]Point, int) []Point{
	"lttb":      lttb,      // largest triangle three buckets: preserves the shape of the line
	"timeBased": timeBased, // mean power of equal intervals: preserves energy
	"minMax":    minMax,    // minimum and maximum of equal numbers of points: preserves peaks
}

// fewest is the minimum number of points, the first and the last one.
const fewest = 2

// Downsample returns at most n points of a series that is sorted by time. The parameter how is lttb, timeBased or
// minMax. The first and the last point are preserved, and values that are NaN or infinite are dropped. The given
// points are not modified.
func Downsample(points []Point, n int, how string) ([]Point, error) {
	way, ok := ways[how]
	if !ok {
		return nil, fmt.Errorf("%w: unknown downsampling algorithm %q: want lttb, timeBased or minMax", ErrQuery, how)
	}
	if n < fewest {
		return nil, fmt.Errorf("%w: a series must have at least %[3]d points, not %[2]d", ErrQuery, n, fewest)
	}
	all := slices.DeleteFunc(slices.Clone(points), func(p Point) bool {
		return math.IsNaN(p.Watts) || math.IsInf(p.Watts, 0)
	})
	if len(all) <= n {
		return all, nil
	}
	out := make([]Point, 0, n)
	out = append(out, all[0])
	if n > fewest {
		out = append(out, way(all, n-fewest)...)
	}
	return append(out, all[len(all)-1]), nil
}

// lttb selects k of the points between the first and the last. It divides them into k buckets and selects from each
// bucket the point that forms the largest triangle with the previously selected point and the mean of the next
// bucket (Steinarsson 2013).
func lttb(all []Point, k int) []Point {
	inner := all[1 : len(all)-1]
	out := make([]Point, 0, k)
	before := all[0]
	for i := range k {
		bucket := part(inner, i, k)
		next := all[len(all)-1:]
		if i+1 < k {
			next = part(inner, i+1, k)
		}
		x, y := mean(next, all[0].At)
		best, most := 0, -1.0
		for j, p := range bucket {
			if area := triangle(before, p, x, y, all[0].At); area > most {
				best, most = j, area
			}
		}
		before = bucket[best]
		out = append(out, before)
	}
	return out
}

func part(points []Point, i, k int) []Point { return points[i*len(points)/k : (i+1)*len(points)/k] }

// mean returns the mean of the points, in seconds since the given time and in watts.
func mean(points []Point, since time.Time) (x, y float64) {
	n := float64(len(points))
	for _, p := range points {
		x += p.At.Sub(since).Seconds() / n
		y += p.Watts / n
	}
	return x, y
}

func triangle(a, b Point, x, y float64, since time.Time) float64 {
	ax, bx := a.At.Sub(since).Seconds(), b.At.Sub(since).Seconds()
	return math.Abs((ax-x)*(b.Watts-a.Watts) - (ax-bx)*(y-a.Watts))
}

// timeBased replaces the points between the first and the last by the mean power of k equal intervals. Each point
// is valid until the next one, so that the area under the steps does not change.
func timeBased(all []Point, k int) []Point {
	from, to := all[1].At, all[len(all)-1].At
	width := max((to.Sub(from)+time.Duration(k)-1)/time.Duration(k), 1)
	var out []Point
	for i := 1; i < len(all)-1; {
		bucket := all[i].At.Sub(from) / width
		j := i + 1
		for j < len(all)-1 && all[j].At.Sub(from)/width == bucket {
			j++
		}
		out = append(out, Point{At: all[i].At, Watts: level(all[i : j+1])})
		i = j
	}
	return out
}

// level returns the mean power of points. All but the last point are valid until the next one.
func level(points []Point) float64 {
	long := points[len(points)-1].At.Sub(points[0].At).Seconds()
	sum := 0.0
	for i := range len(points) - 1 {
		if long > 0 {
			sum += points[i].Watts * (points[i+1].At.Sub(points[i].At).Seconds() / long)
		} else {
			sum += points[i].Watts / float64(len(points)-1)
		}
	}
	return sum
}

// minMax selects the minimum and the maximum of each of k/2 buckets, in chronological order.
func minMax(all []Point, k int) []Point {
	inner := all[1 : len(all)-1]
	byWatts := func(a, b Point) int { return cmp.Compare(a.Watts, b.Watts) }
	if k == 1 {
		return []Point{slices.MaxFunc(inner, byWatts)}
	}
	out := make([]Point, 0, k)
	buckets := k / 2 // two points per bucket
	for i := range buckets {
		bucket := part(inner, i, buckets)
		low, high := slices.MinFunc(bucket, byWatts), slices.MaxFunc(bucket, byWatts)
		if low.At.After(high.At) {
			low, high = high, low
		}
		out = append(out, low)
		if low != high {
			out = append(out, high)
		}
	}
	return out
}
