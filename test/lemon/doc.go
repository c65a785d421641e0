// Package lemon holds the tests that compare package mincost with LEMON's network simplex, which is the reference for
// speed and for equal cost. LEMON is C++ and no part of KubEnergy: make lemon fetches its headers, and without them or
// without a compiler the tests are skipped.
package lemon
