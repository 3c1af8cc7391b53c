package slack

import (
	"regexp"
	"strings"
)

// callable are the ids that a mention can have. What is not one is not written: an id
// stands outside of all escaping.
var callable = regexp.MustCompile(`^(?:[UW][A-Z0-9]{6,20}|S[A-Z0-9]{6,20}|here|channel)$`)

// mentions calls users and groups by their ids, which only the configuration gives.
func mentions(ids []string) string {
	var said []string
	for _, id := range ids {
		switch {
		case !callable.MatchString(id):
		case id == "here" || id == "channel":
			said = append(said, "<!"+id+">")
		case id[0] == 'S':
			said = append(said, "<!subteam^"+id+">")
		default:
			said = append(said, "<@"+id+">")
		}
	}
	return strings.Join(said, " ")
}

// calling puts mentions before a text that is escaped already.
func calling(ids []string, escaped string) string {
	if said := mentions(ids); said != "" {
		return said + " " + escaped
	}
	return escaped
}
