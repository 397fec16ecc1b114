-- What `carillon ledger tidy` removes of the part audit, once every table is empty.
DROP TABLE audit_logs;
