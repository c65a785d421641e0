package cli

import (
	"time"

	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
)

// HideProgress keeps programs that this process plays from reporting progress, which slow machines would do.
func HideProgress() { cmdutil.SilentFor = 24 * time.Hour }
