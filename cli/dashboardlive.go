package cli

import (
	"context"
	"errors"

	"github.com/kubenergy/kubenergy/dashboard"
)

func openLive(context.Context, terminal, *centralFlags) (dashboard.Source, error) {
	return nil, errors.New("not yet")
}
