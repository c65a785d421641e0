// Package sliceutil provides functions on slices that are missing in the standard library.
package sliceutil

import "slices"

// Map applies fn to each element and returns the results.
func Map[T, V any](all []T, fn func(T) V) []V {
	values := make([]V, len(all))
	for i := range all {
		values[i] = fn(all[i])
	}
	return values
}

// Distinct returns the elements without duplicates, in the order of their first occurrence.
func Distinct[T comparable](all []T) (distinct []T) {
	for _, v := range all {
		if !slices.Contains(distinct, v) {
			distinct = append(distinct, v)
		}
	}
	return distinct
}

// Order returns the indices 0 to n − 1, sorted by compare. Equal indices keep their order.
func Order[I ~int | ~int32](n int, compare func(a, b I) int) []I {
	order := make([]I, n)
	for i := range order {
		order[i] = I(i)
	}
	slices.SortStableFunc(order, compare)
	return order
}

// Refs returns pointers to the elements.
func Refs[T any](all []T) []*T {
	refs := make([]*T, len(all))
	for i := range all {
		refs[i] = &all[i]
	}
	return refs
}

// Places returns the index of each element by its key. If several elements have the same key, the last one counts.
func Places[T any, K comparable](all []T, key func(*T) K) map[K]int {
	places := make(map[K]int, len(all))
	for i := range all {
		places[key(&all[i])] = i
	}
	return places
}

// TrueFirst compares two booleans for sorting. It orders true before false.
func TrueFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}
