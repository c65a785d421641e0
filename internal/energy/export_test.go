package energy

import (
	"errors"

	"github.com/kubenergy/kubenergy/internal/energy/codec"
)

// AppendState appends the state of the fit as an attributor stores it.
func (f *Fit) AppendState(b []byte) []byte {
	c := codec.Writer(b)
	f.code(&c)
	return c.Data()
}

// RestoreState restores the output of AppendState as an attributor does, and returns the remaining data.
func (f *Fit) RestoreState(b []byte) (rest []byte, err error) {
	to := NewFit(f.prior)
	c := codec.Reader(b)
	if to.code(&c); c.Failed() {
		return b, errors.New("damaged")
	}
	*f = *to
	return c.Data(), nil
}
