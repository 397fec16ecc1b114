-- What `carillon ledger tidy` removes of the part api, once every table is empty.
DROP VIEW IF EXISTS notificationqueue;
DROP VIEW IF EXISTS "NotificationQueue";
DROP TABLE redriven_routes;
DROP TABLE receipts;
DROP TABLE digest_members;
DROP TABLE digests;
DROP TABLE throttles;
DROP TABLE templates;
DROP TABLE preferences;
DROP TABLE admin_actions;
DROP TABLE api_keys;
DROP TABLE breakers;
