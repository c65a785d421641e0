package sqlstore

import "github.com/kubenergy/kubenergy/internal/energy/codec"

// near codes a number that is near another one.
func near[T ~int64](c *codec.Codec, v *T, to int64) {
	by := int64(*v) - to
	codec.Int(c, &by)
	*v = T(to + by)
}

// step codes a number that is near the one before, which it becomes.
func step(c *codec.Codec, before, v *int64) {
	near(c, v, *before)
	*before = *v
}
