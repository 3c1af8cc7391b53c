// Only pins the vulnerability database, whose data/osv vulncheck reads: there is no code here, and go mod tidy would
// empty it. To renew it: go get golang.org/x/vulndb@latest
module gpuvigil/e2e/tools/vulndb

go 1.26.0

require golang.org/x/vulndb v0.0.0-20261105234957-e22db6528018
