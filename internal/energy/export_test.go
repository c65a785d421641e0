package energy

import (
	"errors"

	"github.com/kubenergy/kubenergy/internal/energy/codec"
)

// AppendState appends what an attributor keeps of its fit.
func (f *Fit) AppendState(b []byte) []byte {
	c := codec.Writer(b)
	f.code(&c)
	return c.Data()
}

// RestoreState reads what AppendState wrote, as an attributor does, and returns what follows it.
func (f *Fit) RestoreState(b []byte) (rest []byte, err error) {
	to := NewFit(f.prior)
	c := codec.Reader(b)
	if to.code(&c); c.Failed() {
		return b, errors.New("damaged")
	}
	*f = *to
	return c.Data(), nil
}
