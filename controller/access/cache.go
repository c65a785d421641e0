package access

import (
	"sync"
	"time"
)

// A cache remembers a bounded number of answers, each until it is too old.
type cache[K comparable, V any] struct {
	most int

	mu      sync.Mutex
	entries map[K]cached[V]
}

type cached[V any] struct {
	value V
	until time.Time
}

func newCache[K comparable, V any](most int) *cache[K, V] {
	return &cache[K, V]{most: most, entries: map[K]cached[V]{}}
}

// get returns what is known at an instant. It is there until put drops it; fresh says whether it still counts.
func (c *cache[K, V]) get(key K, now time.Time) (value V, fresh bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[key]
	return e.value, ok && now.Before(e.until)
}

func (c *cache[K, V]) drop(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.entries, key)
}

func (c *cache[K, V]) put(key K, value V, now, until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.entries[key]; !known && len(c.entries) >= c.most {
		c.makeRoom(now)
	}
	c.entries[key] = cached[V]{value, until}
}

// makeRoom drops what is too old, and something else if nothing is. It looks at a few entries only: a cache that is
// full of what is fresh must not cost a walk over all of it for each request.
func (c *cache[K, V]) makeRoom(now time.Time) {
	const looks = 64
	seen := 0
	for key, e := range c.entries { // begins anywhere
		if seen++; !now.Before(e.until) || len(c.entries) >= c.most && seen >= looks {
			delete(c.entries, key)
		}
		if seen >= looks {
			return
		}
	}
}

func (c *cache[K, V]) size() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.entries)
}
