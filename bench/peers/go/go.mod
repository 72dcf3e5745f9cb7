module peer

go 1.22
