package cli

import (
	"time"

	"github.com/kubenergy/kubenergy/internal/cli/cmdutil"
)

// HideProgress disables progress output of programs run by this process, because it depends on the speed of the
// machine.
func HideProgress() { cmdutil.SilentFor = 24 * time.Hour }
