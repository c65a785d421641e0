package sqlstore

import "github.com/kubenergy/kubenergy/internal/energy/codec"

// near encodes or decodes v as the difference from to.
func near[T ~int64](c *codec.Codec, v *T, to int64) {
	by := int64(*v) - to
	codec.Int(c, &by)
	*v = T(to + by)
}

// step encodes or decodes v as the difference from before, and sets before to v.
func step(c *codec.Codec, before, v *int64) {
	near(c, v, *before)
	*before = *v
}
