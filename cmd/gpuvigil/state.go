package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/alecthomas/kingpin/v2"
)

// socketName is where a running agent answers the commands that ask it.
const socketName = "agent.sock"

// stateFile is the name of the state file. A demo keeps its own: what is made up
// must not mix with what was seen.
func stateFile(d *demo) string {
	if d != nil {
		return "demo.db"
	}
	return "state.db"
}

// addStateDir adds the flag that says where the agent keeps its state and socket.
func addStateDir(cmd *kingpin.CmdClause) *string {
	return cmd.Flag("state.dir", "Directory of the agent's state and socket. Default: $STATE_DIRECTORY, else $XDG_STATE_HOME/gpuvigil, else ~/.local/state/gpuvigil.").String()
}

// stateDir returns the state directory that a flag, or in its absence the
// environment, names.
func stateDir(flag string) (string, error) {
	if flag != "" {
		return flag, nil
	}
	if dir := os.Getenv("STATE_DIRECTORY"); dir != "" {
		return dir, nil // systemd makes it
	}
	if dir := os.Getenv("XDG_STATE_HOME"); dir != "" {
		return filepath.Join(dir, "gpuvigil"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("find a place for the state: %w: give one with --state.dir", err)
	}
	return filepath.Join(home, ".local", "state", "gpuvigil"), nil
}

// makeStateDir makes the state directory, readable by nobody else.
func makeStateDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the state directory %s: %w: give a directory that this user may write to with --state.dir", dir, err)
	}
	probe, err := os.CreateTemp(dir, ".writable-*")
	if err != nil {
		return fmt.Errorf("write to the state directory %s: %w: make it writable for this user, or give another one with --state.dir", dir, err)
	}
	return closeAndRemove(probe)
}

func closeAndRemove(f *os.File) error {
	err := f.Close()
	if rmErr := os.Remove(f.Name()); err == nil {
		err = rmErr
	}
	return err
}
