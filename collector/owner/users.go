package owner

import (
	"bufio"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"gpuvigil/internal/text"
)

// UserForm is how a user is shown.
type UserForm string

// The forms of users.
const (
	UserID   UserForm = "uid"
	UserHash UserForm = "hash" // the same user has the same hash wherever the key is the same
	UserName UserForm = "name"
)

const (
	maxPasswd = 8 << 20
	maxUsers  = 100_000
	passwdAge = time.Minute // between two looks at the file
)

// users names the users of the node.
type users struct {
	form   UserForm
	key    []byte // of the hash
	passwd string // empty: no names

	names  map[int]string // by uid
	looked time.Time      // when the file was last looked at
	info   os.FileInfo    // as it was then
	err    error
}

// refresh reads the file again if it has changed.
func (u *users) refresh(now time.Time) {
	if age := now.Sub(u.looked); u.passwd == "" || !u.looked.IsZero() && age >= 0 && age < passwdAge {
		return
	}
	u.looked, u.err = now, nil
	info, err := os.Stat(u.passwd)
	switch {
	case err != nil:
		u.err = fmt.Errorf("look up the names of users: %w: name the node's file with owners.passwd, or leave it empty", err)
		return
	case u.info != nil && os.SameFile(info, u.info) && info.ModTime().Equal(u.info.ModTime()) && info.Size() == u.info.Size():
		return
	}
	content, err := readRegular(u.passwd, maxPasswd)
	if err != nil {
		u.err = fmt.Errorf("look up the names of users in %s: %w", u.passwd, err)
		return
	}
	u.names, u.info = parsePasswd(strings.NewReader(content)), info
}

// parsePasswd reads names by uid. The first of several names of one uid counts, as it
// does for the C library.
func parsePasswd(r io.Reader) map[int]string {
	found := map[int]string{}
	for lines := bufio.NewScanner(r); lines.Scan() && len(found) < maxUsers; {
		fields := strings.SplitN(lines.Text(), ":", 4)
		if len(fields) < 4 || fields[0] == "" || strings.HasPrefix(fields[0], "#") {
			continue
		}
		uid := number(fields[2])
		if _, seen := found[uid]; uid >= 0 && !seen {
			found[uid] = text.Clean(fields[0], maxName)
		}
	}
	return found
}

// show returns the user as owners spell it.
func (u *users) show(uid int) string {
	digits := strconv.Itoa(uid)
	switch u.form {
	case UserHash:
		mac := hmac.New(sha256.New, u.key)
		mac.Write([]byte(digits))
		return hex.EncodeToString(mac.Sum(nil))[:12]
	case UserName:
		if name := u.names[uid]; name != "" {
			return name
		}
	}
	return digits
}

// check refuses a hash that everybody could undo: there are few uids.
func (u *users) check() error {
	if u.form == UserHash && len(u.key) < 16 {
		return errors.New("show users as a hash: its key has fewer than 16 bytes: write a random one into the file that owners.users_key_file names")
	}
	return nil
}
